"""Runs a pooling request to its results, and aborts it when the client disconnects."""

from starlette.requests import ClientDisconnect, Request

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.respond import while_connected
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.generation.service import GenerationHandle
from tokenwire.coordinator.http.connection import ignore
from tokenwire.coordinator.pooling.reply import PooledReply
from tokenwire.coordinator.pooling.service import PoolingService
from tokenwire.coordinator.pooling.types import PoolingRequest, Results
from tokenwire.coordinator.types import ServedModel


async def pool(service: PoolingService, pooling: PoolingRequest, model: ServedModel, request: Request) -> Results:
    """Prepare a request, and return the results of all its inputs. Raises the first error, or ClientDisconnect.

    What it was made of is not kept meanwhile, unless the caller does.
    """
    context, request_id = context_of(request.scope), pooling.request_id
    preparing = service.prepare(pooling, model, context.caller)
    is_large = context.body.held_bytes > 0  # it takes long to tokenize, and nobody may wait for it any more
    prepared = await (while_connected(context.connection, preparing) if is_large else preparing)
    lengths, reply = prepared.lengths, PooledReply(prepared.most_numbers, pooling.params.dtype)
    del pooling
    context.handle = handle = await service.start(prepared, reply, context)
    del prepared
    try:
        context.connection.watch(on_lost=reply.give_up, on_drained=ignore)
        results = await reply.wait()
        if context.connection.lost:
            raise ClientDisconnect
        context.record.cached_tokens = sum([result.cached_tokens for result in results])
        return Results(request_id, results, lengths)
    finally:
        _end(context, sum(lengths), reply, handle)


def _end(context: RequestContext, tokens: int, reply: PooledReply, handle: GenerationHandle) -> None:
    """Abort what is still running of a request, complete its record, and settle its tokens."""
    handle.abort()
    context.record.error = reply.failure
    context.record_client()
    context.connection.release()
    handle.settle(tokens)
