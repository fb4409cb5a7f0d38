"""Baselines under the same load in the same run: bare transport writes, and a bare uvicorn."""

import asyncio
import itertools
import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import cast

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"simulated","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,'
    b'"token_ids":null}]}\n\n'
)


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _last(count: int) -> bytes:
    return f'data: {{"choices":[],"usage":{{"completion_tokens":{count}}}}}\n\ndata: [DONE]\n\n'.encode()


class _Writer(asyncio.Protocol):
    """Responds to any request with a stream; a timer writes to all connections of its group, as one frame does."""

    def __init__(self, open_streams: "dict[asyncio.Transport, tuple[int, int]]") -> None:
        self._open = open_streams
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._request += data
        _, separator, body = self._request.partition(b"\r\n\r\n")
        if separator and body.endswith(b"}"):
            self._transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            count = int(json.loads(body)["max_tokens"])
            self._open[self._transport] = count, count

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self._transport, None)


async def serve_writes(step_s: float, groups: int = 1) -> None:
    """Only write one chunk to every open stream per step, one group of streams after the other."""
    streams: list[dict[asyncio.Transport, tuple[int, int]]] = [{} for _ in range(groups)]
    following = itertools.cycle(streams)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Writer(next(following)), "127.0.0.1", 0)
    print(f"ready: http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    chunk = _framed(_CHUNK)
    tick = loop.time()
    for group in itertools.cycle(streams):
        tick += step_s / groups
        await asyncio.sleep(max(0.0, tick - loop.time()))
        for transport, (left, count) in list(group.items()):
            if left:
                transport.write(chunk)
                group[transport] = left - 1, count
            else:
                transport.write(_framed(_last(count)) + b"0\r\n\r\n")
                del group[transport]


async def _stream(request: Request) -> StreamingResponse:
    count = int((await request.json())["max_tokens"])
    step_s = request.app.state.step_s

    async def chunks() -> AsyncIterator[bytes]:
        # All streams tick together, as they do behind an engine.
        loop = asyncio.get_running_loop()
        tick = loop.time() - loop.time() % step_s
        for _ in range(count):
            tick += step_s
            await asyncio.sleep(max(0.0, tick - loop.time()))
            yield _CHUNK
        yield _last(count)

    return StreamingResponse(chunks(), media_type="text/event-stream")


def serve_uvicorn(step_s: float) -> None:
    """Serve the same chunks from a Starlette route, one generator per stream."""
    app = Starlette(routes=[Route("/v1/chat/completions", _stream, methods=["POST"])])
    app.state.step_s = step_s
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(2048)
        print(f"ready: http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    kind, step_ms, *groups = sys.argv[1:]
    if kind == "writes":
        uvloop.run(serve_writes(float(step_ms) / 1000, *map(int, groups)))
    else:
        serve_uvicorn(float(step_ms) / 1000)
