"""Tool calls and reasoning over chat completions, with the real OpenAI client."""

import json
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.e2e.scripted import REPLIES
from tests.processes import Service

MESSAGES: Any = [{"role": "user", "content": "What is the weather in Zürich?"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
    for name in ("get_weather", "get_time")
]
CHAT = "/v1/chat/completions"


class Assembled:
    """A streamed reply assembled as clients do it."""

    def __init__(self, chunks: list[dict[str, Any]]) -> None:
        self.content = self.reasoning = ""
        self.calls: dict[int, dict[str, str]] = {}
        self.token_ids: list[int] = []
        self.tokens: list[str] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}
        for chunk in chunks:
            self.usage = chunk.get("usage") or self.usage
            for choice in chunk["choices"]:
                self._add(choice)

    def _add(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        self.content += delta.get("content") or ""
        self.reasoning += delta.get("reasoning") or ""
        self.token_ids += choice.get("token_ids") or []
        self.tokens += [entry["token"] for entry in (choice["logprobs"] or {"content": []})["content"]]
        self.finish_reason = choice["finish_reason"] or self.finish_reason
        for call in delta.get("tool_calls") or []:
            known = self.calls.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            known["id"] += call.get("id") or ""
            for name, text in (call.get("function") or {}).items():
                known[name] += text or ""

    @property
    def functions(self) -> list[tuple[str, Any]]:
        """Names and arguments of the calls."""
        return [(call["name"], json.loads(call["arguments"])) for call in self.calls.values()]


def body(model: str, **fields: Any) -> dict[str, Any]:
    """Return a request with tools and all optional fields of replies."""
    common = {"model": model, "messages": MESSAGES, "tools": TOOLS, "max_tokens": 400}
    return {**common, "logprobs": True, "return_token_ids": True, **fields}


def replied_choice(service: Service, model: str, **fields: Any) -> dict[str, Any]:
    """Return the choice of a full response."""
    response = httpx.post(service.url + CHAT, json=body(model, **fields), timeout=30)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def assembled_stream(service: Service, model: str, **fields: Any) -> Assembled:
    """Return an assembled streamed response."""
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = httpx.post(service.url + CHAT, json=body(model, **fields, **options), timeout=30)
    assert response.status_code == 200, response.text
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    return Assembled([json.loads(event) for event in events])


def test_the_client_gets_a_tool_call(scripted_client: OpenAI) -> None:
    """The message has the call with its arguments as JSON, and the finish reason tool_calls."""
    choice = scripted_client.chat.completions.create(model="calls", messages=MESSAGES, tools=TOOLS).choices[0]

    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is not None
    assert choice.message.content.strip() == "Sure."
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_weather",
        {"city": "Zürich", "days": 2},
    )


@pytest.mark.parametrize("model", REPLIES)
def test_streams_equal_full_responses(scripted: Service, model: str) -> None:
    """Content, reasoning, calls, ids, log-probabilities and finish reason."""
    full, streamed = replied_choice(scripted, model), assembled_stream(scripted, model)

    message = full["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    assert streamed.functions == [(call["name"], json.loads(call["arguments"])) for call in calls]
    assert streamed.content.strip() == (message["content"] or "").strip()
    assert streamed.reasoning == (message["reasoning"] or "")
    assert streamed.token_ids == full["token_ids"]
    assert streamed.tokens == [entry["token"] for entry in full["logprobs"]["content"]]
    assert streamed.finish_reason == full["finish_reason"]


def test_two_calls_come_in_order(scripted: Service) -> None:
    """Each call has its own index and id."""
    streamed = assembled_stream(scripted, "calls-twice")

    assert [name for name, _ in streamed.functions] == ["get_weather", "get_time"]
    assert list(streamed.calls) == [0, 1]
    assert len({call["id"] for call in streamed.calls.values()}) == 2


def test_reasoning_is_counted(scripted: Service) -> None:
    """Usage has the number of reasoning tokens."""
    streamed = assembled_stream(scripted, "thinks")

    details = streamed.usage["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < streamed.usage["completion_tokens"]
    assert streamed.reasoning.strip() == "Two and two."
    assert streamed.content.strip() == "It is “four”."
    assert streamed.finish_reason == "stop"


def test_hidden_reasoning_stays_hidden(scripted: Service) -> None:
    """Neither its text nor its tokens are returned."""
    for shown in (
        replied_choice(scripted, "thinks", include_reasoning=False),
        assembled_stream(scripted, "thinks", include_reasoning=False),
    ):
        assert "Two and two" not in str(vars(shown) if isinstance(shown, Assembled) else shown)
    full = replied_choice(scripted, "thinks", include_reasoning=False)
    assert (full["logprobs"], full["token_ids"]) == (None, None)
    assert full["message"]["content"].strip() == "It is “four”."


def test_a_slow_reader_loses_nothing_of_a_call(scripted: Service) -> None:
    """Buffered steps are still parsed one by one."""
    with httpx.stream("POST", scripted.url + CHAT, json=body("calls", stream=True), timeout=30) as response:
        scripted.wait_slots(0, worker=list(REPLIES).index("calls"))  # all is generated before anything is read
        text = response.read().decode()

    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line][:-1]
    assert Assembled([json.loads(event) for event in events]).functions == [
        ("get_weather", {"city": "Zürich", "days": 2})
    ]


def test_invalid_choices_are_named(scripted: Service, service: Service) -> None:
    """An unknown tool, and tools on a server without a parser, are 400s with the reason."""
    named = {"type": "function", "function": {"name": "other"}}
    answer = httpx.post(scripted.url + CHAT, json=body("calls", tool_choice=named)).json()
    assert "does not match any of the specified `tools`" in answer["error"]["message"]

    answer = httpx.post(service.url + CHAT, json={"messages": MESSAGES, "tools": TOOLS}).json()
    assert answer["error"]["code"] == 400
    assert "--enable-auto-tool-choice" in answer["error"]["message"]
    fine = httpx.post(
        service.url + CHAT, json={"messages": MESSAGES, "tools": TOOLS, "tool_choice": "none", "max_tokens": 3}
    )
    assert fine.status_code == 200


@pytest.mark.parametrize("limit", [30, 60])
def test_a_truncated_call_is_sent_up_to_the_limit(scripted: Service, limit: int) -> None:
    """Streamed or not, which vLLM's full responses have as text; no traceback is logged."""
    options = {"logprobs": False, "return_token_ids": False, "max_tokens": limit}
    full = replied_choice(scripted, "only-calls", **options)
    streamed = assembled_stream(scripted, "only-calls", **options)

    assert (full["finish_reason"], streamed.finish_reason) == ("length", "length")
    (call,) = full["message"]["tool_calls"]
    (sent,) = streamed.calls.values()
    assert (call["function"]["name"], sent["name"]) == ("get_weather", "get_weather")
    assert call["function"]["arguments"] == sent["arguments"]
    assert not (full["message"]["content"] or "").strip()
    assert "Traceback" not in scripted.coordinator.log
