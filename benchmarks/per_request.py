"""CPU of the coordinator for a request without its tokens: streamed chats of one token over kept-alive connections."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load import http_request
from benchmarks.processes import Measured, measured, simulated_pair

_CONNECTIONS = 32
_REQUESTS = 4800
_BODY = {"messages": [{"role": "user", "content": "Say hello, please."}], "max_tokens": 1, "stream": True}
_END = b"0\r\n\r\n"


def run(streams: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Measure the coordinator, and a bare uvicorn, with these numbers of concurrent requests."""
    for count in streams:
        for case, cost in (("coordinator", measure(count)), ("bare uvicorn", _floor(count))):
            yield {"case": case, "streams": count, "us_per_request": cost}


def measure(connections: int = _CONNECTIONS) -> float:
    """Return the CPU time of the coordinator's process per request, in µs."""
    options = ("--sim-step-ms", "5", "--sim-prefill-rate", "0", "--sim-max-num-seqs", str(connections))
    with simulated_pair(*options) as (_, coordinator, url, _):
        return asyncio.run(_measure(coordinator, url, connections))


def _floor(connections: int) -> float:
    """Return that of a server that responds with constants; see benchmarks.floor."""
    with measured(["uvicorn", "5"], module="benchmarks.floor") as server:
        url = server.wait_for(r"ready: (http://\S+)")[1]
        return asyncio.run(_measure(server, url, connections))


async def _measure(server: Measured, url: str, connections: int) -> float:
    each = max(4, min(_REQUESTS, 300 * connections) // connections)
    await _send(url, connections, max(1, each // 8))
    before = server.cpu_seconds()
    await _send(url, connections, each)
    return 1e6 * (server.cpu_seconds() - before) / (each * connections)


async def _send(url: str, connections: int, requests: int) -> None:
    await asyncio.gather(*(_one_connection(url, requests) for _ in range(connections)))


async def _one_connection(url: str, requests: int) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    request = http_request(url, "/v1/chat/completions", _BODY)
    for _ in range(requests):
        writer.write(request)
        reply = await reader.readuntil(_END)
        if not reply.startswith(b"HTTP/1.1 200 ") or b"data: [DONE]" not in reply:
            raise RuntimeError(reply.decode(errors="replace"))
    writer.close()
