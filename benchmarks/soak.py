"""Memory of both processes while a hundred clients chat, disconnect and come back."""

import asyncio
import json
import random
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load import http_request
from benchmarks.processes import Measured, simulated_pair

_CLIENTS = 100
_SAMPLES = 120
_TURNS = 8
"""Of a conversation, whose ids are kept by the coordinator."""
_HISTORY_MB = 16
"""Small enough that the history is full early, so that growth afterwards would be a leak."""
_LEAVE_BYTES = 4000
_END = b"0\r\n\r\n"
_CONTENT = re.compile(rb'"content":("(?:[^"\\]|\\.)*")')


def run(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the resident memory of a coordinator and its worker, at even intervals."""
    options = ("--sim-step-ms", "20", "--sim-max-num-seqs", str(_CLIENTS))
    with simulated_pair(*options, coordinator_options=["--history-mb", str(_HISTORY_MB)]) as (
        worker,
        coordinator,
        url,
        _,
    ):
        yield from asyncio.run(_measure(worker, coordinator, url, seconds))


async def _measure(worker: Measured, coordinator: Measured, url: str, seconds: float) -> list[dict[str, Any]]:
    replies = [0]
    clients = [asyncio.create_task(_chat_on(url, random.Random(seed), replies)) for seed in range(_CLIENTS)]
    started = time.monotonic()
    rows = []
    for number in range(_SAMPLES + 1):
        elapsed = number * seconds / _SAMPLES
        await asyncio.sleep(started + elapsed - time.monotonic())
        memory = {"coordinator_mb": round(coordinator.memory_mb(), 1), "worker_mb": round(worker.memory_mb(), 1)}
        rows.append({"minutes": round(elapsed / 60, 3), "replies": replies[0], **memory})
    for each in clients:
        each.cancel()
    ended = await asyncio.gather(*clients, return_exceptions=True)
    failed = [each for each in ended if isinstance(each, Exception)]
    if failed:
        raise RuntimeError(f"{len(failed)} clients failed") from failed[0]
    return rows


async def _chat_on(url: str, rng: random.Random, replies: list[int]) -> None:
    """Hold one conversation after the other; disconnect within every eighth reply."""
    while True:
        session, messages = f"{rng.getrandbits(64):x}", []
        for _ in range(rng.randint(1, _TURNS)):
            messages.append({"role": "user", "content": "word " * rng.randint(5, 100)})
            body = {"messages": messages, "session_id": session, "max_tokens": rng.randint(10, 200), "stream": True}
            text = await _reply(url, body, leave=rng.random() < 1 / 8)
            replies[0] += 1
            if text is None:
                break
            messages.append({"role": "assistant", "content": text})


async def _reply(url: str, body: dict[str, Any], leave: bool) -> str | None:
    """Return the text of a reply; None if the client has left."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(http_request(url, "/v1/chat/completions", body))
        data = bytearray()
        while not data.endswith(_END):
            piece = await reader.read(65536)
            if not piece:
                raise RuntimeError(f"the stream broke off: {data[-300:]!r}")
            data += piece
            if leave and len(data) > _LEAVE_BYTES:
                return None
    finally:
        writer.close()
    if not data.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(data.decode(errors="replace"))
    return "".join(json.loads(found) for found in _CONTENT.findall(data))
