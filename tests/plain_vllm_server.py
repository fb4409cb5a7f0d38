"""A fake plain vLLM server: its routes, with tokens that a test sends."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

MODEL = "stock"
PLACEHOLDER = 99
"""The id that stands for a picture."""


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


class Pooling:
    """One request to pool inputs."""

    def __init__(self, request: web.Request, body: dict[str, Any]) -> None:
        self.path = request.path
        self.body = body
        self._connection = request.transport
        self.result: asyncio.Future[web.Response] = asyncio.get_running_loop().create_future()
        self.left = asyncio.Event()
        """Set when the client has disconnected."""

    def respond(self, content: bytes) -> None:
        """Send the numbers of all inputs."""
        self.result.set_result(web.Response(body=content))

    def fail(self, status: int, message: str) -> None:
        """Send an error."""
        self.result.set_result(web.json_response({"error": {"message": message}}, status=status))

    def break_off(self) -> None:
        """Close the connection without a response."""
        assert self._connection is not None
        self._connection.abort()


def expanded_response(token_ids: Sequence[int]) -> dict[str, Any]:
    """Return the response to a request for one token, with its prompt: each placeholder stands for three ids."""
    expanded: list[int] = []
    ranges = []
    for token_id in token_ids:
        if token_id == PLACEHOLDER:
            ranges.append({"offset": len(expanded), "length": 3})
        expanded += [PLACEHOLDER] * 3 if token_id == PLACEHOLDER else [token_id]
    choice = {"index": 0, "token_ids": [1], "finish_reason": "length"}
    return {"choices": [choice], "prompt_token_ids": expanded, "mm_placeholders": {"image": ranges}}


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
        self.pools_for: tuple[str, int] | None = None
        """The task, and the width of its results, of a server that pools; None: it generates."""
        self.pictures: int | None = None
        """How many pictures a prompt may have; None: the model takes text only."""
        self.kept: set[str] = set()
        """Names of pictures that it has."""
        self.expands = asyncio.Event()
        """Set while it responds to requests for the ids of a prompt."""
        self.expands.set()
        self.expanding = self.most_expanding = 0
        self.received: list[bytes] = []
        """Pictures that it got, in order."""
        self.generations: asyncio.Queue[Generation] = asyncio.Queue()
        self.poolings: asyncio.Queue[Pooling] = asyncio.Queue()
        self.answers: Callable[[Pooling], bytes] | None = None
        """What responds to requests that pool; None: they are put into the queue."""
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
        if request.path in ("/pooling", "/v1/embeddings") or self.pools_for is not None:
            return await self._pool(request)
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
        if (problem := self._take_pictures(body.get("content_parts", ()))) is not None:
            return web.json_response({"error": {"message": problem}}, status=400)
        if body.get("return_token_ids") and not self.full:
            return await self._expand(body["token_ids"])
        generation = Generation(body, dict(request.headers))
        self.generations.put_nowait(generation)
        return await self._stream(request, generation) if body["stream"] else web.json_response(self.full)

    async def _expand(self, token_ids: Sequence[int]) -> web.StreamResponse:
        self.expanding += 1
        self.most_expanding = max(self.most_expanding, self.expanding)
        await self.expands.wait()
        self.expanding -= 1
        return web.json_response(expanded_response(token_ids))

    def _take_pictures(self, parts: Sequence[dict[str, Any]]) -> str | None:
        """Keep the pictures of a request; return what is wrong with them."""
        if parts and self.pictures is None:
            return "stock is not a multimodal model"
        if self.pictures is not None and len(parts) > self.pictures:
            return f"At most {self.pictures} image(s) may be provided in one prompt."
        for number, part in enumerate(parts):
            if part["url"] is None and part["uuid"] not in self.kept:
                return f"Cache miss for image at index {number} but data is not provided."
            if part["url"] is not None:
                self.received.append(base64.b64decode(part["url"].partition(",")[2]))
            self.kept.add(part["uuid"])
        return None

    async def _pool(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.pools_for is None or request.path not in ("/pooling", "/v1/embeddings"):
            return web.json_response({"detail": "Not Found"}, status=404)
        task, width = self.pools_for
        if body.get("task", "embed") != task:
            message = f"Unsupported task: {body['task']!r} Supported tasks: {(task,)}"
            return web.json_response({"error": {"message": message}}, status=400)
        if "embed_dtype" not in body:  # by which a coordinator finds out the task
            return web.Response(body=bytes(4 * width))
        pooling = Pooling(request, body)
        if self.answers is not None:
            return web.Response(body=self.answers(pooling))
        self.poolings.put_nowait(pooling)
        try:
            return await pooling.result
        finally:
            pooling.left.set()

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
