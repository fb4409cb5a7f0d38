"""Streamed requests whose replies are kept and read afterwards, and long conversations."""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from benchmarks.load import StreamResult, http_request, percentile, stream

_SYLLABLES = ("ka", "lo", "mi", "ter", "sun", "ra", "ven", "do", "shi", "pel", "ar", "gon", "u", "fex", "bri", "ta")
_SPAWN_S = 1.0
_TOGETHER_S = 0.3


@dataclass(slots=True)
class StreamedReply:
    """A chat's reply as a client reads it."""

    text: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    error: str | None = None


def events_of(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON of the server-sent events in a chunked body."""
    for line in _unchunked(body).decode().split("\n"):
        data = line.removeprefix("data: ").strip()
        if line.startswith("data: ") and data != "[DONE]":
            yield json.loads(data)


def _unchunked(body: bytes) -> bytes:
    found, position = bytearray(), 0
    while (end := body.find(b"\r\n", position)) >= 0:
        size = int(body[position:end].partition(b";")[0], 16)
        found += body[end + 2 : end + 2 + size]
        position = end + 4 + size
    return bytes(found)


def reply_of(result: StreamResult) -> StreamedReply:
    """Read a finished stream."""
    reply = StreamedReply()
    if result.status != 200:
        reply.error = f"status {result.status}: {bytes(result.body or b'')[:200].decode(errors='replace')}"
        return reply
    if not result.complete:
        reply.error = "the stream broke off"
    for event in events_of(bytes(result.body or b"")):
        if "error" in event:
            reply.error = json.dumps(event["error"])[:200]
        for choice in event.get("choices") or ():
            reply.text += choice["delta"].get("content") or ""
            reply.logprobs += (choice.get("logprobs") or {}).get("content") or []
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
        reply.usage = event.get("usage") or reply.usage
    return reply


class Flood:
    """Sends many requests from several processes; with one, from this one."""

    def __init__(self, clients: int = 1) -> None:
        self._clients = clients
        self._pool = ProcessPoolExecutor(clients, get_context("spawn")) if clients > 1 else None
        # Spawned now, while servers start: at the first load they would be late.
        self._spawned = [self._pool.submit(time.sleep, _SPAWN_S) for _ in range(clients)] if self._pool else []

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def send(self, url: str, path: str, bodies: Sequence[Mapping[str, Any]], streams: int) -> list[StreamResult]:
        """Send requests, some at a time; their results keep the bodies of the replies."""
        requests = [http_request(url, path, body) for body in bodies]
        if self._pool is None:
            return asyncio.run(_send(url, requests, streams, time.monotonic()))
        wait(self._spawned)
        begin = time.monotonic() + _TOGETHER_S
        count = min(self._clients, streams)
        shares = [
            self._pool.submit(_send_share, url, requests[index::count], streams // count, begin)
            for index in range(count)
        ]
        return [result for share in shares for result in share.result()]


def _send_share(url: str, requests: Sequence[bytes], streams: int, begin: float) -> list[StreamResult]:
    return asyncio.run(_send(url, requests, streams, begin))


async def _send(url: str, requests: Sequence[bytes], streams: int, begin: float) -> list[StreamResult]:
    """Send from the time `begin` on, which is the same in all processes."""
    free = asyncio.Semaphore(streams)
    await asyncio.sleep(max(0.0, begin - time.monotonic()))

    async def send(request: bytes) -> StreamResult:
        async with free:
            return await stream(url, request, keep_body=True)

    return await asyncio.gather(*(send(request) for request in requests))


def timings(results: Sequence[StreamResult]) -> dict[str, Any]:
    """Return throughput, TTFT and gaps of results that are there whole."""
    whole = [result for result in results if result.complete and result.arrivals]
    figures: dict[str, Any] = {"requests": len(results), "completed": len(whole)}
    if not whole:
        return figures
    seconds = max(result.arrivals[-1] for result in whole) - min(result.started for result in whole)
    tokens = sum(result.completion_tokens for result in whole)
    first = [1000 * (result.time_to_first_token or 0.0) for result in whole]
    gaps = [1000 * gap for result in whole for gap in result.gaps]
    figures |= {"duration_s": seconds, "output_tokens": tokens, "output_tokens_per_s": tokens / seconds}
    for name, values in (("ttft", first), ("itl", gaps)):
        figures |= {f"{name}_p{percent}_ms": percentile(values, percent) for percent in (50, 99)}
    return figures


@dataclass(frozen=True, slots=True)
class Conversations:
    """Chats of several turns: each turn sends all before it again."""

    count: int
    turns: int
    words: int
    """Of each of the client's messages."""
    max_tokens: int

    async def hold(self, url: str, model: str) -> list[dict[str, Any]]:
        """Hold all at the same time; returns figures by turn."""
        held = await asyncio.gather(*(self._one(url, model, number) for number in range(self.count)))
        rows = []
        for turn in range(self.turns):
            results = [turns[turn] for turns in held if len(turns) > turn]
            replies = [reply_of(result) for result in results]
            prompts = [reply.usage.get("prompt_tokens", 0) for reply in replies]
            cached = [(reply.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for reply in replies]
            errors = sorted({reply.error for reply in replies if reply.error})
            rows.append(
                {
                    "turn": turn + 1,
                    **timings(results),
                    "prompt_tokens": sum(prompts) / max(1, len(prompts)),
                    "cached_share": sum(cached) / max(1, sum(prompts)),
                    "errors": errors[:3],
                }
            )
        return rows

    async def _one(self, url: str, model: str, number: int) -> list[StreamResult]:
        messages: list[dict[str, str]] = []
        results: list[StreamResult] = []
        for turn in range(self.turns):
            messages.append({"role": "user", "content": words(self.words, 1000 * number + turn)})
            body = streamed_chat(model, messages, self.max_tokens) | {"ignore_eos": True}
            result = await stream(url, http_request(url, "/v1/chat/completions", body), keep_body=True)
            results.append(result)
            reply = reply_of(result)
            if reply.error:
                break
            messages.append({"role": "assistant", "content": reply.text})
        return results


def streamed_chat(model: str, messages: Sequence[Mapping[str, str]], max_tokens: int) -> dict[str, Any]:
    """Return the body of a streamed chat that reports its usage."""
    return {
        "model": model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 1,
        "top_p": 1,  # not the one that the tokenizer's model asks for
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def words(count: int, seed: int) -> str:
    """Return words that no other seed begins with."""
    chosen = random.Random(seed)
    return f"{seed} " + " ".join("".join(chosen.choices(_SYLLABLES, k=chosen.randint(1, 3))) for _ in range(count))
