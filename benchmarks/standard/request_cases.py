"""What single requests and tokens cost a front end: one case each, measured on one server at a time."""

import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from benchmarks.load import http_request, percentile
from benchmarks.processes import cpu_seconds_of
from benchmarks.standard.http_client import Reply, all_at_once, http_get, kept_alive

CHATS = "/v1/chat/completions"
AT_ONCE, KEPT, EACH = 256, 32, 50
TOKENS = 128
BEHIND, BEHIND_TOKENS = 512, 200
FLEET_STREAMS, FLEET_TOKENS = 1024, 48
PROMPTS, WORDS = 8, 4000
CONVERSATION_TOKENS, MESSAGES = 16_000, 20
STOP_STRINGS = ("\n\nHuman:", "<|never|>", "Observation:", "###")
"""They never match, and each character has to be looked at."""

_ROOT = Path(__file__).parents[2]

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load."""

    name: str
    url: str
    model: str
    pids: Sequence[int]
    """Of its front end."""
    tokenize: str = "/tokenize"

    def cpu_s(self) -> float:
        """User and system time of its front end, in the scheduler's resolution."""
        return sum(map(cpu_seconds_of, self.pids))

    def chat(self, messages: str | Sequence[Mapping[str, str]], **fields: Any) -> bytes:
        """Render a chat request of one token."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": self.model, "messages": messages, "max_tokens": 1, "ignore_eos": True, **fields}
        return http_request(self.url, CHATS, body)


class Texts:
    """Prompts that no cache has seen; the same ones for each server."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._words = [
            word for path in sorted(_ROOT.glob("docs/*/*.md")) for word in re.findall(r"\S+", path.read_text())
        ]

    def words(self, count: int, seed: str) -> str:
        """Return so many words of this project's documents."""
        return " ".join(random.Random(seed).choices(self._words, k=count))

    def conversation(self, seed: str) -> list[dict[str, str]]:
        """Return messages of some 800 tokens, of users and of a model in turn."""
        tokens = len(self.tokenizer.encode(self.words(1000, seed)).ids)
        each = 1000 * CONVERSATION_TOKENS // MESSAGES // tokens
        return [
            {"role": ("user", "assistant")[number % 2], "content": self.words(each, f"{seed}.{number}")}
            for number in range(MESSAGES + 1)
        ]


Measure = Callable[[Target, Texts, str], Awaitable[Figures]]
"""Measures one round of a case on one server; the seed is the round's."""


def _per_request_ms(cpu_s: float, replies: Sequence[Reply]) -> Figures:
    return {"ms": 1000 * cpu_s / len(replies)}


def _first_token_ms(replies: Sequence[Reply]) -> float:
    return 1000 * percentile([reply.first_token - reply.sent for reply in replies], 50)


async def burst(target: Target, texts: Texts, seed: str) -> Figures:
    """Send short streamed chats at once, on new connections, three times."""
    request, replies, before = target.chat("Say hello, please.", stream=True), [], target.cpu_s()
    for _ in range(3):
        replies += await all_at_once(target.url, request, AT_ONCE)
    return {**_per_request_ms(target.cpu_s() - before, replies), "ttft_ms": _first_token_ms(replies)}


def repeated(render: Callable[[Target], bytes], connections: int = KEPT) -> Measure:
    """Return the measurement of one request, sent fifty times over each of some connections that stay open."""

    async def measure(target: Target, texts: Texts, seed: str) -> Figures:
        before = target.cpu_s()
        replies = await kept_alive(target.url, [render(target)] * (EACH * connections), connections)
        return _per_request_ms(target.cpu_s() - before, replies)

    return measure


def _ids(target: Target) -> bytes:
    body = {"model": target.model, "prompt": [28120, 665] * 20, "max_tokens": 1, "ignore_eos": True}
    return http_request(target.url, "/v1/completions", body)


def tokens(streams: int = AT_ONCE, count: int = TOKENS, **fields: Any) -> Measure:
    """Return the measurement of streamed tokens; requests of one token show what is taken out as the start."""

    async def measure(target: Target, texts: Texts, seed: str) -> Figures:
        used, chunks = [], []
        for length in (1, count):
            request, before = (
                target.chat("Tell a story.", stream=True, **{**fields, "max_tokens": length}),
                target.cpu_s(),
            )
            replies = await all_at_once(target.url, request, streams)
            used.append(target.cpu_s() - before)
            chunks.append(sum(reply.chunks for reply in replies))
        more = streams * (count - 1)
        return {"us": 1e6 * (used[1] - used[0]) / more, "chunks": (chunks[1] - chunks[0]) / more}

    return measure


async def behind(target: Target, texts: Texts, seed: str) -> Figures:
    """Send streams that ask for twice as many tokens as can be streamed one by one."""
    request, before = target.chat("Tell a story.", stream=True, max_tokens=BEHIND_TOKENS), target.cpu_s()
    started = time.monotonic()
    replies = await all_at_once(target.url, request, BEHIND)
    seconds, count = time.monotonic() - started, BEHIND * BEHIND_TOKENS
    used = 1e6 * (target.cpu_s() - before) / count
    return {"tokens_per_s": count / seconds, "ttft_ms": _first_token_ms(replies), "us": used}


def cold(render: Callable[[Target, str], bytes]) -> Measure:
    """Return the measurement of prompts of 4,000 words, one after the other."""

    async def measure(target: Target, texts: Texts, seed: str) -> Figures:
        prompts = [texts.words(WORDS, f"{seed}.{number}") for number in range(PROMPTS)]
        if target.name == "tokenizers":
            before = time.process_time()
            for prompt in prompts:
                texts.tokenizer.encode_batch_fast([prompt], add_special_tokens=False)
            return {"ms": 1000 * (time.process_time() - before) / PROMPTS}
        before = target.cpu_s()
        replies = await kept_alive(target.url, [render(target, prompt) for prompt in prompts], 1)
        return _per_request_ms(target.cpu_s() - before, replies)

    return measure


def _tokenize(target: Target, prompt: str) -> bytes:
    return http_request(target.url, target.tokenize, {"model": target.model, "prompt": prompt})


def second_turns(conversations: int, connections: int) -> Measure:
    """Return the measurement of the second turns of conversations of 16,000 tokens."""

    async def measure(target: Target, texts: Texts, seed: str) -> Figures:
        turns = []
        for number in range(conversations):
            messages = texts.conversation(f"{seed}.{conversations}.{number}")
            (first,) = await kept_alive(target.url, [target.chat(messages, max_tokens=16)], 1)
            reply = json.loads(first.body)["choices"][0]["message"]["content"]
            said = [{"role": "assistant", "content": reply}, {"role": "user", "content": texts.words(40, seed)}]
            turns.append(target.chat([*messages, *said]))
        before = target.cpu_s()
        replies = await kept_alive(target.url, turns, connections)
        return _per_request_ms(target.cpu_s() - before, replies)

    return measure


_SERVERS = ("tokenwire", "smg", "vllm")


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and on which servers."""

    measure: Measure
    servers: Sequence[str] = _SERVERS


CASES: Mapping[str, Case] = {
    "burst": Case(burst, (*_SERVERS, "uvicorn")),
    "kept alive": Case(repeated(lambda target: target.chat("Say hello, please.", stream=True)), (*_SERVERS, "uvicorn")),
    "chat whole": Case(repeated(lambda target: target.chat("Say hello, please."))),
    "chat alone": Case(repeated(lambda target: target.chat("Say hello, please."), 1)),
    "ids whole": Case(repeated(_ids), ("tokenwire", "vllm")),
    "models": Case(repeated(lambda target: http_get(target.url, "/v1/models"))),
    "tokens": Case(tokens(), (*_SERVERS, "writes")),
    "stop strings": Case(tokens(stop=STOP_STRINGS)),
    "log-probabilities": Case(tokens(logprobs=True, top_logprobs=5)),
    "fleet": Case(tokens(FLEET_STREAMS, FLEET_TOKENS), ("1 worker", "24 workers")),
    "cold": Case(cold(lambda target, prompt: target.chat(prompt)), (*_SERVERS, "tokenizers")),
    "tokenize": Case(cold(_tokenize)),
    "second turn": Case(second_turns(4, 1)),
    "second turns": Case(second_turns(16, 8)),
}
"""With steps of 20 ms, and of 80 ms where workers are compared."""
BEHIND_CASES: Mapping[str, Case] = {"behind": Case(behind)}
"""With steps of 4 ms."""
