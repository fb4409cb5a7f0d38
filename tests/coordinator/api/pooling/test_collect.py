"""A pooling request is aborted when its client leaves, and recorded in any case."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from tests.coordinator.fakes import request_context
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.pooling.embedding import embedding_model, pooled_message, pooling_request
from tests.workers import until
from tokenwire.coordinator.api.pooling.collect import pool
from tokenwire.coordinator.generation.context import CONTEXT
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.pooling.service import PoolingService, PreparedPool
from tokenwire.coordinator.types import TokenPrompt
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb


class PooledCall:
    """One request to a fleet whose results the test supplies."""

    def __init__(self) -> None:
        self.fleet, self.context = FakeFleet(), request_context()
        self.leave = asyncio.Event()

        async def receive() -> dict[str, str]:
            await self.leave.wait()
            return {"type": "http.disconnect"}

        self.context.connection._receive = receive  # type: ignore[attr-defined]
        request = Request({"type": "http", CONTEXT: self.context})
        service = PoolingService(self.fleet, ApiSettings())
        self.task = asyncio.create_task(pool(service, pooling_request(TokenPrompt([1])), embedding_model(), request))

    async def end(self, finish: pb.Finish) -> None:
        """End the input."""
        await until(lambda: bool(self.fleet.parts))
        self.fleet.parts[0].listeners[0].step([], finish)


async def test_results_are_returned_and_recorded() -> None:
    """With the tokens that came from a cache."""
    call = PooledCall()
    await call.end(pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=pooled_message([0.5])))

    results = await call.task

    assert list(results.vector(0)) == [0.5]
    assert (call.context.record.cached_tokens, call.context.record.error) == (1, None)


async def test_a_large_request_whose_client_leaves_is_not_submitted() -> None:
    """Nobody waits for it any more, and others wait to be tokenized."""
    call = PooledCall()
    await call.context.body.add(1)
    preparing, prepared = asyncio.Event(), asyncio.Event()

    class Slow(PoolingService):
        async def prepare(self, *arguments: Any) -> PreparedPool:
            preparing.set()
            await prepared.wait()
            return await super().prepare(*arguments)

    call.task.cancel()
    request = Request({"type": "http", CONTEXT: call.context})
    slow = Slow(call.fleet, ApiSettings())
    call.task = asyncio.create_task(pool(slow, pooling_request(TokenPrompt([1])), embedding_model(), request))
    await preparing.wait()
    call.leave.set()

    with pytest.raises(ClientDisconnect):
        await call.task
    assert not call.fleet.parts


async def test_an_error_is_raised_and_recorded() -> None:
    """That of the first input."""
    call = PooledCall()
    await call.end(pb.Finish(reason=pb.FINISH_REASON_ABORT))

    with pytest.raises(Unavailable):
        await call.task
    assert isinstance(call.context.record.error, Unavailable)
    assert call.fleet.parts[0].aborted


async def test_a_client_that_leaves_aborts_its_inputs() -> None:
    """Wherever they are."""
    call = PooledCall()
    await until(lambda: bool(call.fleet.parts))

    call.leave.set()

    with pytest.raises(ClientDisconnect):
        await call.task
    assert call.fleet.parts[0].aborted
    assert call.context.record.client == "client_disconnected"
