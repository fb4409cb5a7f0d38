"""Rendered and derendered chats with parsers, as routers and the gateways behind them ask for them."""

from typing import Any

import httpx
import pytest

from tests.e2e.scripted import REPLIES
from tests.e2e.test_tools import body, replied_choice
from tests.processes import Service

CHAT = "/v1/chat/completions"


def accepted(service: Service, path: str, content: dict[str, Any]) -> Any:
    """Return the JSON of a response that is no error."""
    response = httpx.post(service.url + path, json=content, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the ids of its tool calls, which are random."""
    return {**message, "tool_calls": [call["function"] for call in message.get("tool_calls") or []]}


@pytest.mark.parametrize("model", REPLIES)
def test_a_rendered_chat_comes_back_as_its_message(scripted: Service, model: str) -> None:
    """Through /inference/v1/generate and back: reasoning, content, calls, log-probabilities and finish reason."""
    chat = body(model)
    expected = replied_choice(scripted, model)
    rendered = accepted(scripted, f"{CHAT}/render", chat)
    generated = accepted(scripted, "/inference/v1/generate", rendered)
    back = {"model": model, "generate_response": generated, "prompt_token_ids": rendered["token_ids"]}
    (choice,) = accepted(scripted, f"{CHAT}/derender", {**back, "chat_request": chat})["choices"]

    assert rendered["reasoning_parser_kwargs"]["chat_template_kwargs"]["add_generation_prompt"] is True
    assert without_ids(choice["message"]) == without_ids(expected["message"])
    for name in ("finish_reason", "stop_reason", "token_ids", "logprobs"):
        assert choice[name] == expected[name]


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("model", REPLIES)
def test_chunks_of_ids_come_back_as_chunks_of_the_message(scripted: Service, model: str, size: int) -> None:
    """One request for each, with the state that the last one returned."""
    chat = body(model)
    expected = replied_choice(scripted, model)
    prompt = accepted(scripted, f"{CHAT}/render", chat)["token_ids"]
    token_ids, state, joined = expected["token_ids"], None, _Joined()
    for start in range(0, len(token_ids), size):
        finish = "stop" if start + size >= len(token_ids) else None
        chunk = {"choices": [{"index": 0, "token_ids": token_ids[start : start + size], "finish_reason": finish}]}
        content = {"stream": True, "model": model, "generate_chunk": chunk, "stream_state": state}
        step = accepted(scripted, f"{CHAT}/derender", {**content, "prompt_token_ids": prompt, "chat_request": chat})
        state = step["stream_state"]
        joined.add(step["chunk"]["choices"][0])

    message = expected["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    assert joined.reasoning == (message["reasoning"] or "")
    assert joined.content.strip() == (message["content"] or "").strip()
    assert joined.calls == calls
    assert joined.finish_reason == expected["finish_reason"]
    assert state is not None
    assert state["last_tool_call_ids"] == joined.ids


class _Joined:
    def __init__(self) -> None:
        self.content = self.reasoning = ""
        self.calls: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.finish_reason: str | None = None

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        self.content += delta["content"] or ""
        self.reasoning += delta["reasoning"] or ""
        self.finish_reason = choice["finish_reason"] or self.finish_reason
        for call in delta.get("tool_calls", []):
            if "id" in call:
                self.ids.append(call["id"])
                self.calls.append((call["function"]["name"], ""))
            name, arguments = self.calls[call["index"]]
            self.calls[call["index"]] = (name, arguments + call["function"].get("arguments", ""))


def test_parsers_need_the_request(scripted: Service) -> None:
    """Without it, or without the prompt of a stream, markup would be taken for content."""
    chunk = {"choices": [{"index": 0, "token_ids": [65]}]}
    for content, param in (
        ({"generate_response": chunk}, "chat_request"),
        ({"stream": True, "generate_chunk": chunk}, "chat_request"),
        ({"stream": True, "generate_chunk": chunk, "chat_request": body("calls")}, "prompt_token_ids"),
    ):
        response = httpx.post(f"{scripted.url}{CHAT}/derender", json={"model": "calls", **content})
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
