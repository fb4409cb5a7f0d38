"""Sessions with a worker at an address, connected or not."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.workers import accept, running_session, until
from tokenwire.coordinator.fleet.session import FetchFiles, WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.v1 import inference_pb2 as pb

Requests = AsyncIterator[pb.SessionRequest]


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
