"""Requests whose replies a lost worker must not change, and what a client gets of them."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

STORY = [{"role": "user", "content": "Tell me a long story about a fisherman and the sea."}]
_ANOTHER = [{"role": "user", "content": "Explain how a steam engine works, step by step."}]
_NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 90, "maxItems": 90}
_TOOL = {
    "type": "function",
    "function": {
        "name": "draw",
        "strict": True,
        "parameters": {"type": "object", "properties": {"numbers": _NUMBERS}, "required": ["numbers"]},
    },
}
LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 300, "ignore_eos": True, "return_token_ids": True}

CASES: dict[str, dict[str, Any]] = {
    "streamed": {"messages": STORY, "stream": True, **LONG},
    "full": {"messages": STORY, **LONG},
    "streamed with logprobs": {"messages": _ANOTHER, "stream": True, "logprobs": True, "top_logprobs": 3, **LONG},
    "full with logprobs": {"messages": _ANOTHER, "logprobs": True, "top_logprobs": 3, **LONG},
    "forced tool": {
        "messages": STORY,
        "tools": [_TOOL],
        "tool_choice": "required",
        "stream": True,
        "temperature": 0,
        "max_tokens": 300,
    },
    "seeded": {"messages": STORY, **LONG, "stream": True, "temperature": 0.8, "seed": 7},
    "penalties": {"messages": _ANOTHER, **LONG, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "repetition penalty": {"messages": _ANOTHER, **LONG, "stream": True, "repetition_penalty": 1.2},
    "bad words": {"messages": STORY, **LONG, "stream": True, "bad_words": ["boat", "net"]},
    "n": {"messages": STORY, **LONG, "stream": True, "temperature": 0.8, "seed": 11, "n": 2},
}


@dataclass
class ChatAnswer:
    """All that a client got, whichever way."""

    text: dict[int, str] = field(default_factory=dict)
    tool: str = ""
    token_ids: dict[int, list[int]] = field(default_factory=dict)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    finishes: dict[int, str] = field(default_factory=dict)
    stop_reason: Any = None
    usage: dict[str, Any] = field(default_factory=dict)

    def take(self, choice: dict[str, Any], part: dict[str, Any]) -> None:
        """Take a message, or what is new of one."""
        index = choice["index"]
        self.text[index] = self.text.get(index, "") + (part.get("content") or "")
        for call in part.get("tool_calls") or ():
            self.tool += call["function"].get("arguments") or ""
        self.token_ids.setdefault(index, []).extend(choice.get("token_ids") or ())
        self.logprobs += (choice.get("logprobs") or {}).get("content") or []
        if choice["finish_reason"]:
            self.finishes[index] = choice["finish_reason"]
            self.stop_reason = choice.get("stop_reason")

    @property
    def exact(self) -> tuple[Any, ...]:
        """What must be equal to the last bit."""
        tokens = [entry["token"] for entry in self.logprobs]
        return self.text, self.tool, self.token_ids, tokens, self.finishes, self.stop_reason, self.usage


async def answer_to(client: httpx.AsyncClient, body: dict[str, Any], begun: asyncio.Event) -> ChatAnswer:
    """Send a request; `begun` is set when a stream's first tokens are there."""
    answer = ChatAnswer()
    if not body.get("stream"):
        begun.set()
        response = await client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        for choice in response.json()["choices"]:
            answer.take(choice, choice["message"])
        answer.usage = response.json()["usage"]
        return answer
    body = {**body, "stream_options": {"include_usage": True}}
    events = 0
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, line
                for choice in event["choices"]:
                    answer.take(choice, choice["delta"])
                answer.usage = event.get("usage") or answer.usage
                events += 1
                if events == 20:
                    begun.set()
    begun.set()
    return answer


def announce(place: Path, *addresses: str) -> None:
    """Write the list of workers that the coordinator reads."""
    written = place / "workers.new"
    written.write_text("".join(f"{address}\n" for address in addresses))
    written.replace(place / "workers")


def late_piece(text: str) -> str:
    """Return a piece of text from its last fifth that is nowhere before."""
    start = len(text) * 4 // 5
    piece = text[start : start + 12]
    assert text.find(piece) == start
    return piece


def start_answers(
    client: httpx.AsyncClient, cases: dict[str, dict[str, Any]], begun: list[asyncio.Event]
) -> dict[str, asyncio.Task[ChatAnswer]]:
    """Send all requests; `begun` are set one by one."""
    pairs = zip(cases.items(), begun, strict=True)
    return {name: asyncio.create_task(answer_to(client, body, event)) for (name, body), event in pairs}


async def all_answers(client: httpx.AsyncClient, cases: dict[str, dict[str, Any]]) -> dict[str, ChatAnswer]:
    """Send all requests at once, and return what became of them."""
    requests = start_answers(client, cases, [asyncio.Event() for _ in cases])
    return {name: await task for name, task in requests.items()}
