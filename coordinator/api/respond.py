"""Runs a prepared request to its HTTP response, streamed or whole, and aborts it when the client leaves."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.auth.caller import timeout_of
from tokenwire.coordinator.generation.context import context_of
from tokenwire.coordinator.generation.service import Generation, PreparedRequest
from tokenwire.coordinator.http.connection import Connection, connection_of
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.output.collect import CollectedChoice, CollectedReply
from tokenwire.coordinator.output.sse import ChunkEncoder, StreamedReply


@asynccontextmanager
async def _running(
    generation: Generation,
    prepared: PreparedRequest,
    reply: CollectedReply | StreamedReply,
    connection: Connection,
    scope: Scope,
) -> AsyncIterator[None]:
    """Submit a request; at the end of the block nothing of it runs any more, and its record is whole."""
    context = context_of(scope)
    record = context.record
    _begin_record(record, prepared)
    run = context.handle = await generation.start(prepared, reply, context, timeout_of(scope))
    try:
        yield
    finally:
        run.abort()
        _end_record(record, prepared, reply, connection)
        connection.release()
        context.caller.charge(record.completion_tokens)


async def collect(generation: Generation, prepared: PreparedRequest, request: Request) -> list[CollectedChoice]:
    """Generate all choices. Raises the first error, or ClientDisconnect when nobody waits any more."""
    connection = connection_of(request.scope, request.receive, request._send)
    reply = CollectedReply(prepared.choices)
    async with _running(generation, prepared, reply, connection, request.scope):
        connection.watch(on_lost=reply.give_up, on_drained=lambda: None)
        choices = await reply.wait()
        if connection.lost:
            raise ClientDisconnect
        return choices


class EventStream(Response):
    """Streams a reply. The response begins with the first token: an error before that is raised, as the route's own."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, prepared: PreparedRequest, shape: ChunkEncoder) -> None:
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self.body = b""
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._generation = generation
        self._prepared = prepared
        self._shape = shape

    def init_headers(self, headers: "dict[str, str] | None" = None) -> None:  # type: ignore[override]
        """Set headers without the content length that a whole response has."""
        pairs = {"content-type": "text/event-stream; charset=utf-8", **(headers or {})}
        self.raw_headers = [(name.encode(), value.encode()) for name, value in pairs.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope, receive, send)
        prepared = self._prepared
        interval = prepared.request.stream_interval
        reply = StreamedReply(self._shape, prepared.choices, prepared.prompt_tokens, interval)
        async with _running(self._generation, prepared, reply, connection, scope):
            connection.watch(on_lost=reply.give_up, on_drained=reply.resume)
            error = await reply.begin()
            if connection.lost:
                return
            if error is not None:
                raise error
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            reply.attach(connection)
            await _to_the_end(reply, scope)
            if not connection.lost:
                await connection.flush()
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _to_the_end(reply: StreamedReply, scope: Scope) -> None:
    try:
        await reply.wait()
    except asyncio.CancelledError:
        error = context_of(scope).drain_error
        if error is None:
            raise
        reply.fail(error)
        await reply.wait()


def _begin_record(record: RequestRecord, prepared: PreparedRequest) -> None:
    record.request_id, record.model = prepared.request.request_id, prepared.model.fleet_name
    record.choices, record.prompt_tokens = prepared.choices, prepared.prompt_tokens
    record.reused_tokens = sum(prompt.reused for prompt in prepared.prompts)
    record.submitted_at = time.monotonic()
    if record.keeps_prompt:
        record.prompt = prepared.text_of(0)


def _end_record(
    record: RequestRecord, prepared: PreparedRequest, reply: CollectedReply | StreamedReply, connection: Connection
) -> None:
    progress = reply.progress
    record.first_token_at, record.last_token_at = progress.first_at, progress.last_at
    record.finishes, record.error = progress.finishes, progress.failure
    # Choices of one prompt find the same in the cache.
    record.cached_tokens = sum(progress.cached_tokens[:: prepared.request.n])
    record.completion_tokens = sum(map(reply.tokens_of, range(prepared.choices)))
    if connection.lost:
        record.client = "client_slow" if connection.was_cut else "client_disconnected"
