"""Requests rendered per second and core, beside `vllm launch render` with the same model, and whether ids are equal."""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from tokenizers import Tokenizer

from benchmarks.long_prompts import corpus
from benchmarks.processes import Measured, measured, simulated_pair
from tests.ports import free_port
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

_REQUESTS = {1_000: 60, 16_000: 16, 70_000: 8}
"""How many are measured, by the tokens of a conversation's first request."""
_WARM_UP = 3
_CONTEXT = 131_072
_MESSAGE_TOKENS = 800
_TURN_TOKENS = 200
"""Of a reply and of the next question."""
_MODEL = "smollm2"
_PATH = "/v1/chat/completions/render"
_VLLM_ENVIRONMENT = {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class RenderRow:
    """Requests of one length, one after the other: a core's worth, and what a client waits."""

    tokens: int
    turn: str
    requests: int
    tokenwire_per_core_second: float
    vllm_per_core_second: float
    tokenwire_p50_ms: float
    vllm_p50_ms: float
    equal: int
    """Requests for which both returned the same ids."""


@dataclass(slots=True)
class _Server:
    process: Measured
    client: httpx.Client
    cpu_s: float = 0.0
    times_ms: list[float] = field(default_factory=list)

    def render(self, messages: Messages) -> list[int]:
        """Return the ids of a conversation, and count what it took."""
        cpu, began = self.process.cpu_seconds(), time.monotonic()
        response = self.client.post(_PATH, json={"model": _MODEL, "messages": messages})
        self.times_ms.append(1000 * (time.monotonic() - began))
        self.cpu_s += self.process.cpu_seconds() - cpu
        ids: list[int] = response.raise_for_status().json()["token_ids"]
        return ids

    def per_core_second(self) -> float:
        """Return how many requests a second of CPU time is enough for."""
        return len(self.times_ms) / self.cpu_s

    def reset(self) -> None:
        """Forget what requests took so far."""
        self.cpu_s, self.times_ms = 0.0, []


def run(requests: dict[int, int] | None = None) -> Iterator[dict[str, Any]]:
    """Yield a row for conversations that neither has seen, and one for those that grow, of each length."""
    model = str(prepare_embedded_model(default_cache_dir(), lambda _: None))
    talks = _Talks(Tokenizer.from_file(f"{model}/tokenizer.json"))
    options = (model, "--served-model-name", _MODEL, "--sim-max-model-len", str(_CONTEXT))
    with (
        simulated_pair(*options) as (_, coordinator, url, _),
        _renderer(model) as (vllm, vllm_url),
        httpx.Client(base_url=url, timeout=300) as ours,
        httpx.Client(base_url=vllm_url, timeout=300) as theirs,
    ):
        tokenwire, other = _Server(coordinator, ours), _Server(vllm, theirs)
        for tokens, count in (requests or _REQUESTS).items():
            fresh = [talks.start(tokens) for _ in range(_WARM_UP + count)]
            yield asdict(_measure(tokenwire, other, tokens, "first", fresh))
            grown = talks.grow(talks.start(tokens), _WARM_UP + count)
            yield asdict(_measure(tokenwire, other, tokens, "further", grown))


@contextmanager
def _renderer(model: str) -> Iterator[tuple[Measured, str]]:
    port = str(free_port())
    arguments = ["--model", model, "--served-model-name", _MODEL, "--host", "127.0.0.1", "--port", port]
    arguments += ["--max-model-len", str(_CONTEXT), "--disable-uvicorn-access-log"]
    with measured(arguments, "vllm.entrypoints.launchers.render.entry", _VLLM_ENVIRONMENT) as process:
        process.wait_for("Application startup complete", 300)
        yield process, f"http://127.0.0.1:{port}"


def _measure(tokenwire: _Server, vllm: _Server, tokens: int, turn: str, talks: Sequence[Messages]) -> RenderRow:
    """Send each conversation to both servers, one after the other."""
    for messages in talks[:_WARM_UP]:
        for server in (tokenwire, vllm):
            server.render(messages)
    for server in (tokenwire, vllm):
        server.reset()
    equal = sum([tokenwire.render(messages) == vllm.render(messages) for messages in talks[_WARM_UP:]])
    return RenderRow(
        tokens,
        turn,
        len(talks) - _WARM_UP,
        tokenwire.per_core_second(),
        vllm.per_core_second(),
        statistics.median(tokenwire.times_ms),
        statistics.median(vllm.times_ms),
        equal,
    )


class _Talks:
    """Conversations of code and prose, of which no two share a message."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._text = corpus()
        sample = self._text[:200_000]
        self._chars_per_token = len(sample) / len(tokenizer.encode(sample).ids)
        self._chance = random.Random(3)
        self._messages = 0

    def start(self, tokens: int) -> Messages:
        """Return a conversation of about so many tokens, which ends with a question."""
        count = max(1, round(tokens / _MESSAGE_TOKENS)) // 2 * 2 + 1
        return [self._message(number, tokens // count) for number in range(count)]

    def grow(self, messages: Messages, turns: int) -> list[Messages]:
        """Return a conversation's requests: each has a reply and a question more than the last."""
        requests = []
        for _ in range(turns):
            messages = [*messages, *(self._message(role, _TURN_TOKENS) for role in (1, 0))]
            requests.append(messages)
        return requests

    def _message(self, number: int, tokens: int) -> dict[str, str]:
        self._messages += 1
        size = int(tokens * self._chars_per_token)
        start = self._chance.randrange(len(self._text) - size)
        content = f"{self._messages}. {self._text[start : start + size]}"
        return {"role": ("user", "assistant")[number % 2], "content": content}
