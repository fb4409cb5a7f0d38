"""Runs a prepared request to its HTTP response, streamed or not, and aborts it when the client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.service import GenerationHandle, GenerationService, PreparedRequest
from tokenwire.coordinator.http.connection import Connection, ignore
from tokenwire.coordinator.output.collect import CollectedChoice, CollectedReply
from tokenwire.coordinator.output.sse import ChunkEncoder, StreamedReply

T = TypeVar("T")

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""Unlike full responses, streams have no content length."""


def end_reply(
    context: RequestContext,
    prepared: PreparedRequest,
    reply: CollectedReply | StreamedReply,
    handle: GenerationHandle,
) -> None:
    """Abort what is still running of a request, complete its record, and settle its tokens."""
    handle.abort()
    record, progress = context.record, reply.progress
    record.first_token_at, record.last_token_at = progress.first_at, progress.last_at
    record.finishes, record.error = progress.finishes, progress.failure
    # Choices of one prompt have the same cached tokens.
    record.cached_tokens = sum(progress.cached_tokens[:: prepared.request.n])
    record.completion_tokens = sum(map(reply.tokens_of, range(prepared.choices)))
    context.record_client()
    context.connection.release()
    handle.settle(record.prompt_tokens + record.completion_tokens)


async def collect(generation: GenerationService, prepared: PreparedRequest, request: Request) -> list[CollectedChoice]:
    """Generate all choices. Raises the first error, or ClientDisconnect."""
    context = context_of(request.scope)
    connection = context.connection
    reply = CollectedReply(prepared.choices)
    context.handle = handle = await generation.start(prepared, reply, context)
    try:
        connection.watch(on_lost=reply.give_up, on_drained=ignore)
        choices = await reply.wait()
        if connection.lost:
            raise ClientDisconnect
        return choices
    finally:
        end_reply(context, prepared, reply, handle)


async def while_connected(connection: Connection | None, work: Coroutine[Any, Any, T]) -> T:
    """Return what work returns; end it when the client, if there is one, disconnects. Raises ClientDisconnect.

    For what may wait long for others, as prompts with pictures do.
    """
    if connection is None:
        return await work
    working = asyncio.create_task(work)
    connection.watch(on_lost=lambda: _cancel(working), on_drained=ignore)
    try:
        return await working
    except asyncio.CancelledError:
        if connection.lost and working.cancelled():
            raise ClientDisconnect from None
        raise
    finally:
        working.cancel()
        connection.release()


def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()


class EventStream(Response):
    """Streams a reply. The response starts with the first token; earlier errors are raised."""

    media_type = "text/event-stream"

    def __init__(self, generation: GenerationService, prepared: PreparedRequest, encoder: ChunkEncoder) -> None:
        self.status_code = 200
        self.background: BackgroundTask | None = None
        self.body = b""
        self.raw_headers = list(STREAM_HEADERS)
        self._generation = generation
        self._prepared = prepared
        self._encoder = encoder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = context_of(scope)
        connection = context.connection
        prepared = self._prepared
        interval = prepared.request.stream_interval
        reply = StreamedReply(self._encoder, prepared.choices, prepared.prompt_tokens, interval)
        context.handle = handle = await self._generation.start(prepared, reply, context)
        try:
            connection.watch(on_lost=reply.give_up, on_drained=reply.resume)
            error = await reply.begin()
            if connection.lost:
                return
            if error is not None:
                raise error
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            reply.attach(connection)
            await _wait_or_fail(reply, context)
            if not connection.lost:
                await connection.flush()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            end_reply(context, prepared, reply, handle)


async def _wait_or_fail(reply: StreamedReply, context: RequestContext) -> None:
    try:
        await reply.wait()
    except asyncio.CancelledError:
        error = context.drain_error
        if error is None:
            raise
        if context.handle is not None:
            context.handle.abort()  # a slow reader may take long to get the error
        reply.fail(error)
        await reply.wait()
