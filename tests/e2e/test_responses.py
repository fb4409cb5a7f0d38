"""The Responses API with the real `openai` client and real processes.

One file, since all tests are of one route and share the services and their client.
"""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.e2e.scripted import REPLIES
from tests.processes import Service, simulated_service

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": name,
        "description": "…",
        "strict": False,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
    for name in ("get_weather", "get_time")
]
PATH = "/v1/responses"


def create_response(client: OpenAI, **options: Any) -> Any:
    """Create a response; extensions of vLLM go into extra_body."""
    given = {"model": "sim", "input": "Say something.", "max_output_tokens": 24, "temperature": 0, **options}
    return client.responses.create(**given)


def test_a_response_has_text_status_and_usage(client: OpenAI) -> None:
    """A truncated reply is incomplete."""
    response = create_response(client)

    assert response.output_text
    assert response.id.startswith("resp_")
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 24
    assert response.usage.total_tokens == response.usage.input_tokens + 24
    assert response.store is False


def test_streamed_text_equals_full_text(client: OpenAI) -> None:
    """Deltas join to the text, and the last event has the full response."""
    full = create_response(client)

    events = list(create_response(client, stream=True))

    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == full.output_text
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == full.output_text
    assert events[-1].response.usage.output_tokens == full.usage.output_tokens
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_items_are_the_conversation(client: OpenAI) -> None:
    """Instructions and items result in chat's prompt of the same messages."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {"role": "assistant", "content": "Yes?"},
    ]
    question = {"role": "user", "content": "Well."}
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Yes?"},
        question,
    ]

    response = create_response(client, instructions="Be brief.", input=[*items, question])
    chat = client.chat.completions.create(model="sim", messages=messages, max_tokens=24, temperature=0)

    assert response.output_text == chat.choices[0].message.content
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens


def test_a_truncated_response_is_continued(client: OpenAI) -> None:
    """If the incomplete message is sent back."""
    full = create_response(client, max_output_tokens=48).output_text
    cut = create_response(client)
    question = {"role": "user", "content": "Say something."}

    rest = create_response(client, input=[question, *(item.model_dump() for item in cut.output)])

    assert cut.output_text + rest.output_text == full


def test_stop_strings_and_other_extensions_are_passed_on(client: OpenAI) -> None:
    """vLLM's own fields work as in chat."""
    full = create_response(client).output_text
    stop = full[10:13]

    response = create_response(client, extra_body={"stop": [stop], "seed": 1})

    assert response.output_text == full[: full.index(stop)]
    assert response.status == "completed"


def test_log_probabilities_come_with_the_text(client: OpenAI) -> None:
    """One entry per token, streamed or not."""
    options = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    full = create_response(client, **options).output[0].content[0]

    events = list(create_response(client, stream=True, **options))

    assert [len(entry.top_logprobs) for entry in full.logprobs] == [2] * 24
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [entry.token for event in deltas for entry in event.logprobs] == [entry.token for entry in full.logprobs]
    done = next(event for event in events if event.type == "response.output_text.done")
    assert [entry.logprob for entry in done.logprobs] == [entry.logprob for entry in full.logprobs]


def test_a_long_input_is_truncated_only_on_request(client: OpenAI) -> None:
    """truncation "auto" drops its start; otherwise it is an error that names the input."""
    long = "x " * 3000

    with pytest.raises(BadRequestError) as raised:
        create_response(client, input=long)
    response = create_response(client, input=long, truncation="auto")

    assert raised.value.param == "input"
    assert response.usage.input_tokens < 2048


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "input", "required"),
        ({"input": 3}, "input", "string"),
        ({"input": []}, "input", "empty"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input", "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input", "input_image"),
        ({"input": "x", "temperature": "hot"}, "temperature", "number"),
        ({"input": "x", "temperature": 3}, "temperature", "[0, 2]"),
        ({"input": "x", "max_output_tokens": 100_000}, "max_output_tokens", "max_output_tokens=100000"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "not supported"),
        ({"input": "x", "tools": [{"type": "custom"}]}, "tools", "tools[0].name"),
        ({"input": "x", "tools": [{"type": "shell"}]}, "tools", "shell"),
        ({"input": "x", "tools": [{"type": "function", "name": "f"}]}, None, "--enable-auto-tool-choice"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type", "json_schema"),
        ({"input": "x", "reasoning": {"effort": "great"}}, "reasoning.effort", "medium"),
        ({"input": "x", "top_k": "many"}, "top_k", "integer"),
        ({"input": "x", "stop": ["a"] * 5}, "stop", "at most 4"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_requests_are_named(service: Service, body: Any, param: str | None, words: str, stream: bool) -> None:
    """An invalid field gets OpenAI's error object with its name, streamed or not."""
    response = httpx.post(service.url + PATH, json={**body, "stream": stream})

    error = response.json()["error"]
    assert response.status_code == 400
    assert error["param"] == param
    assert words in error["message"]


def test_nothing_is_stored(client: OpenAI) -> None:
    """Reading, deleting and cancelling a response are a 404."""
    response = create_response(client)

    with pytest.raises(NotFoundError, match="not stored"):
        client.responses.retrieve(response.id)
    with pytest.raises(NotFoundError, match="not stored"):
        client.responses.cancel(response.id)


def test_a_disconnected_client_is_aborted(folder: Path) -> None:
    """The engine stops computing for an abandoned stream that would take an hour."""
    with simulated_service(folder, "--sim-step-ms", "100", "--sim-max-model-len", "40000") as service:
        body = {"model": "simulated", "input": "x", "max_output_tokens": 36_000, "stream": True}
        with httpx.stream("POST", service.url + PATH, json=body) as response:
            response.raise_for_status()
            lines = response.iter_lines()  # kept: the end of an iterator closes the connection
            next(lines)
            service.wait_slots(1)

        service.wait_slots(0)


def _output_without_ids(items: Any) -> list[dict[str, Any]]:
    return [item.model_dump(exclude={"id", "call_id"}) for item in items]


@pytest.mark.parametrize("model", REPLIES)
def test_streams_equal_full_responses(scripted_client: OpenAI, model: str) -> None:
    """Reasoning, text and calls are the same items."""
    options = {"model": model, "tools": TOOLS, "max_output_tokens": 200}
    full = create_response(scripted_client, **options)

    events = list(create_response(scripted_client, stream=True, **options))

    assert events[-1].type == "response.completed"
    assert _output_without_ids(events[-1].response.output) == _output_without_ids(full.output)
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output


@pytest.mark.parametrize("model", REPLIES)
def test_the_clients_stream_helper_works(scripted_client: OpenAI, model: str) -> None:
    """The client assembles items from events and finds the same in the last one."""
    with scripted_client.responses.stream(model=model, input="Hi", tools=TOOLS) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()

    assert "".join(deltas) == response.output_text
    assert response.status == "completed"


def test_calls_are_items_with_arguments(scripted_client: OpenAI) -> None:
    """A reply with two calls has reasoning and two calls, no text; their arguments are JSON."""
    response = create_response(scripted_client, model="calls-twice", tools=TOOLS, max_output_tokens=200)

    assert [item.type for item in response.output] == ["reasoning", "function_call", "function_call"]
    assert response.output[0].content[0].text == "\nBoth, then.\n"
    assert [call.name for call in response.output[1:]] == ["get_weather", "get_time"]
    assert [json.loads(call.arguments) for call in response.output[1:]] == [{"city": "Zürich", "days": 2}, {}]
    assert response.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_are_left_out_are_named_in_a_header(scripted: Service, stream: bool) -> None:
    """The rest of the request is served."""
    body = {"model": "calls", "input": "Hi", "tools": [*TOOLS, {"type": "web_search"}], "stream": stream}
    answer = httpx.post(f"{scripted.url}/v1/responses", json=body, timeout=60)

    assert answer.status_code == 200
    assert answer.headers["X-Tokenwire-Tools-Left-Out"] == "web_search"
    assert "get_weather" in answer.text


def test_a_call_goes_back_with_its_output(scripted_client: OpenAI) -> None:
    """Output items are input items: the client sends back the call and its output."""
    first = create_response(scripted_client, model="calls", tools=TOOLS, max_output_tokens=200)
    call: Any = first.output[-1]
    items: list[Any] = [{"role": "user", "content": "Weather?"}, *(item.model_dump() for item in first.output)]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "Rain."})

    second = create_response(scripted_client, model="thinks", input=items, tools=TOOLS, max_output_tokens=200)

    assert second.output_text.strip() == "It is “four”."
    assert second.usage.input_tokens > first.usage.input_tokens


def test_log_probabilities_are_rejected_with_parsers(scripted_client: OpenAI) -> None:
    """Parsers do not map text to tokens."""
    with pytest.raises(BadRequestError) as raised:
        create_response(scripted_client, model="thinks", include=["message.output_text.logprobs"])

    assert raised.value.param == "include"


PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Patches files.", "format": {"type": "text"}}
SHELL: Any = {"type": "local_shell"}


def test_a_custom_tool_is_called_with_text(scripted_client: OpenAI) -> None:
    """Full, and streamed in deltas that join to it; its output is sent back."""
    options: Any = {"model": "patches", "tools": [PATCH, *TOOLS], "max_output_tokens": 200}
    full = create_response(scripted_client, **options)

    events = list(create_response(scripted_client, stream=True, **options))

    call = full.output[-1]
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", '*** a\n+“ü”\n\t"b"')
    deltas = [event for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(event.delta for event in deltas) == call.input
    (done,) = (event for event in events if event.type == "response.custom_tool_call_input.done")
    assert (done.input, done.item_id) == (call.input, events[-1].response.output[-1].id)
    assert _output_without_ids(events[-1].response.output) == _output_without_ids(full.output)
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done."}
    items: list[Any] = [{"role": "user", "content": "Patch."}, call.model_dump(), output]
    assert create_response(scripted_client, **{**options, "model": "thinks"}, input=items).status == "completed"


def test_the_local_shell_is_called_with_a_command(scripted_client: OpenAI) -> None:
    """Full and streamed; its output is sent back."""
    options: Any = {"model": "commands", "tools": [SHELL], "max_output_tokens": 200}
    full = create_response(scripted_client, **options)

    events = list(create_response(scripted_client, stream=True, **options))

    call = full.output[-1]
    assert call.type == "local_shell_call"
    assert call.action.model_dump(exclude_none=True) == {
        "type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 9,
    }  # fmt: skip
    assert [event.type.removeprefix("response.") for event in events[-3:]] == [
        *("output_item.added", "output_item.done", "completed")
    ]
    assert _output_without_ids(events[-1].response.output) == _output_without_ids(full.output)
    output = {"type": "local_shell_call_output", "id": call.call_id, "output": "total 0"}
    items: list[Any] = [{"role": "user", "content": "List."}, call.model_dump(), output]
    assert create_response(scripted_client, **{**options, "model": "thinks"}, input=items).status == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_an_unenforced_grammar_is_reported_in_a_header(scripted: Service, stream: bool) -> None:
    """It is only described to the model; the header has the paths of the tools."""
    form = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}
    body = {"model": "patches", "input": "Hi", "tools": [*TOOLS, {**PATCH, "format": form}], "stream": stream}

    answer = httpx.post(f"{scripted.url}/v1/responses", json=body, timeout=60)

    assert answer.status_code == 200
    assert answer.headers["X-Tokenwire-Grammar-Unenforced"] == "tools[2]"
