"""Sessions with a worker at an address, connected or not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.workers import accept, running_session, until
from tokenwire.coordinator.fleet.session import FetchFiles, WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.v1 import inference_pb2 as pb

Requests = AsyncIterator[pb.SessionRequest]


async def begin_to_read(messages: Requests) -> None:
    """Begin to read the next message, and leave in the middle of it, as gRPC does."""
    reading = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@asynccontextmanager
async def session_with(
    address: str, prepare: Callable[[pb.Model, FetchFiles], Awaitable[None]] = accept
) -> AsyncIterator[WorkerSession]:
    """Run a session, connected or not."""
    async with running_session(WorkerSession(address, "test", prepare)) as session:
        yield session


@asynccontextmanager
async def ready_session(address: str) -> AsyncIterator[WorkerSession]:
    """Run a session that takes requests."""
    async with session_with(address) as session:
        await until(lambda: session.state is SessionState.READY)
        yield session
