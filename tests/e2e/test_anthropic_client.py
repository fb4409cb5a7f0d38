"""The Messages API with the real `anthropic` client and real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from openai import OpenAI

from tests.e2e.scripted import REPLIES
from tests.lazily import Lazily
from tests.processes import Service, simulated_service

if TYPE_CHECKING:
    from anthropic import Anthropic

anthropic = Lazily("anthropic")  # three seconds of every process that collects

TOOLS: list[Any] = [
    {
        "name": name,
        "description": "…",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    }
    for name in ("get_weather", "get_time")
]
MESSAGES: list[Any] = [{"role": "user", "content": "Say something."}]
PATH = "/v1/messages"
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def claude(service: Service) -> Iterator[Anthropic]:
    """The real Anthropic client for the service."""
    with anthropic.Anthropic(base_url=service.url, api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def scripted_claude(scripted: Service) -> Iterator[Anthropic]:
    """The real Anthropic client for models with scripted replies."""
    with anthropic.Anthropic(base_url=scripted.url, api_key="unused", max_retries=0) as client:
        yield client


def create_message(client: Anthropic, extra: dict[str, Any] | None = None, **options: Any) -> Any:
    """Create a message; fields without an argument of the client go into extra_body."""
    given = {"model": "sim", "messages": MESSAGES, "max_tokens": 24, **options}
    return client.messages.create(**given, extra_body=GREEDY if extra is None else extra)


def stream_to_end(client: Anthropic, **options: Any) -> tuple[str, Any]:
    """Stream a message; return the text of its deltas and the client's assembled message."""
    given: dict[str, Any] = {"model": "sim", "messages": MESSAGES, "max_tokens": 24, **options}
    with client.messages.stream(**given, extra_body=GREEDY) as stream:
        return "".join(stream.text_stream), stream.get_final_message()


def test_a_message_has_text_stop_reason_and_usage(claude: Anthropic) -> None:
    """Of a truncated reply."""
    message = create_message(claude)

    assert (message.type, message.role, message.model) == ("message", "assistant", "sim")
    assert message.id.startswith("msg_")
    assert message.content[0].text
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 24


def test_streamed_text_equals_full_text(claude: Anthropic) -> None:
    """Deltas join to the text, and the client's own message equals the full one."""
    full = create_message(claude)

    text, final = stream_to_end(claude)

    assert text == full.content[0].text
    assert final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == full.usage.output_tokens == 24
    assert final.usage.input_tokens == full.usage.input_tokens


def test_messages_are_the_conversation(claude: Anthropic, client: OpenAI) -> None:
    """System and messages result in chat's prompt of the same messages."""
    turns: list[Any] = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}, *MESSAGES]

    message = create_message(claude, system=[{"type": "text", "text": "Be brief."}], messages=turns)
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, *turns]
    chat = client.chat.completions.create(model="sim", messages=messages, max_tokens=24, temperature=0)

    assert message.content[0].text == chat.choices[0].message.content


def test_a_final_assistant_message_is_continued(claude: Anthropic) -> None:
    """The reply continues a prefilled message."""
    full = create_message(claude, max_tokens=48).content[0].text
    beginning = create_message(claude).content[0].text.rstrip()

    rest = create_message(claude, max_tokens=48, messages=[*MESSAGES, {"role": "assistant", "content": beginning}])

    assert full.startswith(beginning)
    assert (beginning + rest.content[0].text).startswith(full)


def test_a_stop_sequence_is_named(claude: Anthropic) -> None:
    """The text ends before it, and the message names it; streamed too."""
    full = create_message(claude).content[0].text
    stop = full[10:13]

    message = create_message(claude, stop_sequences=["never", stop])
    _, final = stream_to_end(claude, stop_sequences=[stop])

    for ended in (message, final):
        assert ended.content[0].text == full[: full.index(stop)]
        assert (ended.stop_reason, ended.stop_sequence) == ("stop_sequence", stop)


def test_tokens_are_counted(claude: Anthropic) -> None:
    """count_tokens returns the length of a prompt, also beyond the context."""
    count = claude.messages.count_tokens(model="sim", messages=MESSAGES, system="Be brief.")
    long = claude.messages.count_tokens(model="sim", messages=[{"role": "user", "content": "x" * 3000}])

    assert count.input_tokens == create_message(claude, system="Be brief.").usage.input_tokens
    assert long.input_tokens > 3000


def test_events_are_those_of_the_api(claude: Anthropic) -> None:
    """The raw stream starts and ends as Anthropic's does."""
    events = [event.type for event in create_message(claude, stream=True)]

    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(events[2:-3]) == {"content_block_delta"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "max_tokens: Field required"),
        ({"max_tokens": 5, "messages": "Hi"}, "messages: Input should be a valid list"),
        ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": 0}, "at least 1"),
        ({"max_tokens": 100_000}, "max_model_len=2048"),
        ({"max_tokens": 5, "temperature": 3}, "temperature must be"),
        ({"max_tokens": 5, "messages": []}, "message"),
        (
            {
                "max_tokens": 5,
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "url", "url": "https://example.org/"}}],
                    }
                ],
            },
            "takes text only",
        ),
        ({"max_tokens": 5, "messages": [{"role": "user", "content": "x " * 3000}]}, "maximum context length"),
        ({"max_tokens": 5, "stop_sequences": ["a"] * 5}, "stop_sequences: "),
        ({"max_tokens": 5, "stop_sequences": [""]}, "empty string"),
        ({"max_tokens": 5, "tools": [{"name": "f", "input_schema": {}}]}, "--enable-auto-tool-choice"),
        ({"max_tokens": 5, "tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
        ({"max_tokens": 5, "tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"max_tokens": 5, "container": "c"}, "`container` is not supported"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_requests_are_named(service: Service, body: Any, words: str, stream: bool) -> None:
    """An invalid field gets Anthropic's error object with its name, streamed or not."""
    response = httpx.post(service.url + PATH, json={"model": "sim", "messages": MESSAGES, **body, "stream": stream})

    answer = response.json()
    assert response.status_code == 400
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert words in answer["error"]["message"]


def test_errors_are_the_clients_own(claude: Anthropic) -> None:
    """The client raises its own exceptions, with Anthropic's body."""
    with pytest.raises(anthropic.NotFoundError) as missing:
        create_message(claude, model="other")
    with pytest.raises(anthropic.BadRequestError):
        create_message(claude, extra={"temperature": 9})

    assert isinstance(missing.value.body, dict)
    assert missing.value.body["error"]["type"] == "not_found_error"


def test_other_errors_have_the_same_format(service: Service) -> None:
    """Unknown routes, methods, malformed JSON and bodies over the limit."""
    url = service.url + PATH

    answers = [
        httpx.get(url),
        httpx.get(f"{url}/nowhere"),
        httpx.post(url, content=b"{", headers={"content-type": "application/json"}),
        httpx.post(url, content=b"x" * (33 * 1024 * 1024)),
    ]

    assert [(answer.status_code, answer.json()["error"]["type"]) for answer in answers] == [
        (405, "invalid_request_error"),
        (404, "not_found_error"),
        (400, "invalid_request_error"),
        (413, "request_too_large"),
    ]


def test_a_disconnected_client_is_aborted(folder: Path) -> None:
    """The engine stops computing for an abandoned stream that would take an hour."""
    with simulated_service(folder, "--sim-step-ms", "100", "--sim-max-model-len", "40000") as service:
        body = {"model": "simulated", "messages": MESSAGES, "max_tokens": 36_000, "stream": True}
        with httpx.stream("POST", service.url + PATH, json=body) as response:
            response.raise_for_status()
            lines = response.iter_lines()  # kept: the end of an iterator closes the connection
            next(lines)
            service.wait_slots(1)

        service.wait_slots(0)


def _content(message: Any) -> list[dict[str, Any]]:
    return [block.model_dump(include={"type", "text", "thinking", "name", "input"}) for block in message.content]


@pytest.mark.parametrize("model", REPLIES)
def test_streams_equal_full_responses(scripted_claude: Anthropic, model: str) -> None:
    """Thinking, text and calls are the same blocks."""
    full = create_message(scripted_claude, model=model, tools=TOOLS, max_tokens=200)

    _, final = stream_to_end(scripted_claude, model=model, tools=TOOLS, max_tokens=200)

    assert _content(final) == _content(full)
    assert final.stop_reason == full.stop_reason
    assert final.usage == full.usage


def test_calls_are_blocks_with_input(scripted_claude: Anthropic) -> None:
    """A reply with two calls has thinking and two calls, no text; the thinking has a signature."""
    message = create_message(scripted_claude, model="calls-twice", tools=TOOLS, max_tokens=200)

    assert [block.type for block in message.content] == ["thinking", "tool_use", "tool_use"]
    assert message.content[0].thinking == "\nBoth, then.\n"
    assert message.content[0].signature
    assert [(block.name, block.input) for block in message.content[1:]] == [
        ("get_weather", {"city": "Zürich", "days": 2}),
        ("get_time", {}),
    ]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_are_left_out_are_named_in_a_header(scripted: Service, stream: bool) -> None:
    """The rest of the request is served."""
    tools = [*TOOLS, {"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "calls", "max_tokens": 200, "messages": MESSAGES, "tools": tools, "stream": stream}
    answer = httpx.post(f"{scripted.url}/v1/messages", json=body, timeout=60)

    assert answer.status_code == 200
    assert answer.headers["X-Tokenwire-Tools-Left-Out"] == "web_search_20250305"
    assert "get_weather" in answer.text


def test_a_call_goes_back_with_its_result(scripted_claude: Anthropic) -> None:
    """The client sends back the call and its result."""
    first = create_message(scripted_claude, model="calls", tools=TOOLS, max_tokens=200)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "Rain."}
    turns = [*MESSAGES, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]

    second = create_message(scripted_claude, model="thinks", messages=turns, tools=TOOLS, max_tokens=200)

    assert second.content[-1].text.strip() == "It is “four”."
    assert second.stop_reason == "end_turn"
    assert second.usage.input_tokens > first.usage.input_tokens


def test_thinking_can_be_requested(scripted_claude: Anthropic) -> None:
    """Thinking with a budget is served, as a block of its own."""
    thinking = {"type": "enabled", "budget_tokens": 1024}

    message = create_message(scripted_claude, model="thinks", max_tokens=2000, thinking=thinking)

    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.usage.output_tokens_details.thinking_tokens > 0
