"""The floor to compare with: a bare uvicorn that writes equal chunks, a loop per stream, and does nothing else."""

import asyncio
import socket
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"simulated","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,'
    b'"token_ids":null}]}\n\n'
)


async def _stream(request: Request) -> StreamingResponse:
    body = await request.json()
    step_s = float(request.query_params["step_ms"]) / 1000
    count = int(body["max_tokens"])

    async def chunks() -> AsyncIterator[bytes]:
        # All streams tick together, as they do behind an engine.
        loop = asyncio.get_running_loop()
        tick = loop.time() - loop.time() % step_s
        for _ in range(count):
            tick += step_s
            await asyncio.sleep(max(0.0, tick - loop.time()))
            yield _CHUNK
        usage = f'data: {{"choices":[],"usage":{{"completion_tokens":{count}}}}}\n\n'
        yield usage.encode() + b"data: [DONE]\n\n"

    return StreamingResponse(chunks(), media_type="text/event-stream")


def main() -> None:
    """Serve on a free port and say which."""
    app = Starlette(routes=[Route("/v1/chat/completions", _stream, methods=["POST"])])
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(2048)
        print(f"ready: http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
