"""A fake plain vLLM server: its routes, with tokens that a test sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

MODEL = "stock"


class Generation:
    """One streamed request."""

    def __init__(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        self.body = body
        self.headers = headers
        self.server_id = f"generate-tokens-{body['request_id']}"
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.aborted = False
        self.left = asyncio.Event()
        """Set when the client has disconnected."""

    def emit(self, *token_ids: int, finish: str | None = None, stop: int | None = None, **more: Any) -> None:
        """Send tokens; the ones with a finish are the last."""
        choice = {"index": 0, "token_ids": list(token_ids), "finish_reason": finish, "stop_reason": stop, **more}
        self.send({"request_id": self.server_id, "usage": None, "output_mode": "tokens", "choices": [choice]})
        if finish is not None:
            self.chunks.put_nowait(b"data: [DONE]\n\n")
            self.chunks.put_nowait(None)

    def send(self, event: dict[str, Any]) -> None:
        """Send an event."""
        self.chunks.put_nowait(b"data: " + json.dumps(event).encode() + b"\n\n")

    def break_off(self) -> None:
        """End the stream in the middle."""
        self.chunks.put_nowait(None)


class FakeVllmServer:
    """Responds as vLLM's API server."""

    def __init__(self) -> None:
        self.url = ""
        self.healthy = True
        self.enabled = True
        """Whether it takes token ids."""
        self.refusal: tuple[int, str] | None = None
        """Status and message of every response, if requests are to be rejected."""
        self.full: dict[str, Any] = {}
        """The response to requests that are not streamed."""
        self.generations: asyncio.Queue[Generation] = asyncio.Queue()
        self.running: dict[str, Generation] = {}
        self.keys: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Respond to any request."""
        self.keys.add(request.headers.get("Authorization", ""))
        match request.path:
            case "/health":
                return web.Response(status=200 if self.healthy else 503)
            case "/version":
                return web.json_response({"version": "0.32.0"})
            case "/metrics":
                return web.Response(text="# HELP vllm:x X\n# TYPE vllm:x gauge\nvllm:x 1.0\n")
            case "/v1/models":
                base = {"id": MODEL, "root": "/models/stock", "parent": None, "max_model_len": 512}
                return web.json_response({"data": [base, {"id": "adapter", "parent": MODEL, "max_model_len": 512}]})
        if not self.enabled:
            return web.json_response({"error": {"message": "Scale-out endpoints are disabled"}}, status=403)
        body = await request.json()
        if request.path == "/inference/v1/abort_requests":
            for server_id in body["request_ids"]:
                if generation := self.running.get(server_id):
                    generation.aborted = True
                    generation.emit(finish="abort")
            return web.Response()
        if self.refusal is not None:
            return web.json_response({"error": {"message": self.refusal[1]}}, status=self.refusal[0])
        generation = Generation(body, dict(request.headers))
        self.generations.put_nowait(generation)
        return await self._stream(request, generation) if body["stream"] else web.json_response(self.full)

    async def _stream(self, request: web.Request, generation: Generation) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.running[generation.server_id] = generation
        try:
            while (chunk := await generation.chunks.get()) is not None:
                await response.write(chunk)
        finally:
            del self.running[generation.server_id]
            generation.left.set()
        return response


@asynccontextmanager
async def fake_vllm_server() -> AsyncIterator[FakeVllmServer]:
    """Run the server on its own port."""
    fake = FakeVllmServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
