"""Bar: two real vLLM workers, one is killed in mid-reply, and the replies do not show it."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.servers import ENGINE_ARGUMENTS, START_TIMEOUT_S, environment
from tests.processes import Process, coordinator, running

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]

_STORY = [{"role": "user", "content": "Tell me a long story about a fisherman and the sea."}]
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
_LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 300, "ignore_eos": True, "return_token_ids": True}

CASES: dict[str, dict[str, Any]] = {
    "streamed": {"messages": _STORY, "stream": True, **_LONG},
    "full": {"messages": _STORY, **_LONG},
    "streamed with logprobs": {"messages": _ANOTHER, "stream": True, "logprobs": True, "top_logprobs": 3, **_LONG},
    "full with logprobs": {"messages": _ANOTHER, "logprobs": True, "top_logprobs": 3, **_LONG},
    "forced tool": {
        "messages": _STORY,
        "tools": [_TOOL],
        "tool_choice": "required",
        "stream": True,
        "temperature": 0,
        "max_tokens": 300,
    },
    "seeded": {"messages": _STORY, **_LONG, "stream": True, "temperature": 0.8, "seed": 7},
    "penalties": {"messages": _ANOTHER, **_LONG, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "repetition penalty": {"messages": _ANOTHER, **_LONG, "stream": True, "repetition_penalty": 1.2},
    "bad words": {"messages": _STORY, **_LONG, "stream": True, "bad_words": ["boat", "net"]},
    "n": {"messages": _STORY, **_LONG, "stream": True, "temperature": 0.8, "seed": 11, "n": 2},
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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for logs."""
    return tmp_path_factory.mktemp("failover")


@pytest.fixture(scope="module")
def workers(place: Path) -> Iterator[list[Process]]:
    """Two workers, started one after the other: both at once take longer than that."""
    with ExitStack() as stack:
        started = []
        for number in range(2):
            arguments = ["worker", "--listen", f"unix:{place}/{number}.sock", "--", *ENGINE_ARGUMENTS]
            worker = stack.enter_context(running(arguments, place, f"worker-{number}", environment(first=not number)))
            worker.wait_for(r"ready: .* on (\S+)", START_TIMEOUT_S)
            started.append(worker)
        yield started


async def test_nobody_notices_a_killed_worker(place: Path, workers: list[Process]) -> None:
    """Streamed or not, with logprobs, a stop string, a tool call, seeds and penalties: ids and text are the same."""
    addresses = [f"unix:{place}/{number}.sock" for number in range(2)]
    announce(place, addresses[0])
    options = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    with coordinator(place, [f"file:{place}/workers"], *options, start_timeout_s=60) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            undisturbed = await _answers(client, CASES)
            stop = _late_piece(undisturbed["streamed"].text[0])
            stopped = {"messages": _STORY, **_LONG, "stop": [stop]}
            cases = {**CASES, "stop string": stopped, "streamed stop string": {**stopped, "stream": True}}
            undisturbed |= await _answers(client, {name: cases[name] for name in cases if "stop" in name})
            assert undisturbed["stop string"].stop_reason == stop

            begun = [asyncio.Event() for _ in cases]
            requests = _started(client, cases, begun)
            await asyncio.gather(*(event.wait() for event in begun))
            announce(place, *addresses)
            await asyncio.to_thread(process.wait_for, r"worker unix:\S+/1.sock: .*, ready")
            assert not [name for name, task in requests.items() if task.done()]
            os.killpg(workers[0].popen.pid, signal.SIGKILL)
            answers = {name: await task for name, task in requests.items()}

    assert int(re.findall(r"lost: resuming (\d+) sequence\(s\) elsewhere", process.log)[0]) >= len(cases)
    assert "has made no step" not in process.log
    assert "silent" not in process.log
    wrong = [name for name in cases if answers[name].exact != undisturbed[name].exact]
    assert not wrong, [(answers[name].exact, undisturbed[name].exact) for name in wrong]
    for name in cases:
        values = [
            [(entry["logprob"], before["logprob"])]
            + [(new["logprob"], old["logprob"]) for new, old in zip(*_tops(entry, before), strict=True)]
            for entry, before in zip(answers[name].logprobs, undisturbed[name].logprobs, strict=True)
        ]
        assert all(abs(new - old) < 1e-3 for row in values for new, old in row)


def _tops(*entries: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [entry["top_logprobs"] for entry in entries]


def announce(place: Path, *addresses: str) -> None:
    """Write the list of workers that the coordinator reads."""
    written = place / "workers.new"
    written.write_text("".join(f"{address}\n" for address in addresses))
    written.replace(place / "workers")


def _late_piece(text: str) -> str:
    """Return a piece of text from its last fifth that is nowhere before."""
    start = len(text) * 4 // 5
    piece = text[start : start + 12]
    assert text.find(piece) == start
    return piece


def _started(
    client: httpx.AsyncClient, cases: dict[str, dict[str, Any]], begun: list[asyncio.Event]
) -> dict[str, asyncio.Task[ChatAnswer]]:
    pairs = zip(cases.items(), begun, strict=True)
    return {name: asyncio.create_task(answer_to(client, body, event)) for (name, body), event in pairs}


async def _answers(client: httpx.AsyncClient, cases: dict[str, dict[str, Any]]) -> dict[str, ChatAnswer]:
    requests = _started(client, cases, [asyncio.Event() for _ in cases])
    return {name: await task for name, task in requests.items()}
