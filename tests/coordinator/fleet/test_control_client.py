"""One control call: every failure is a TokenwireError, except a cancellation of the caller."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.workers import accept
from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError, Unavailable


class Session(WorkerSession):
    """A session that is connected or not."""

    is_connected = True

    @property
    def control(self) -> Any:
        """The worker's control calls."""
        return object() if self.is_connected else None


@pytest.mark.parametrize("error", [grpc.aio.UsageError("closed"), asyncio.CancelledError()])
@pytest.mark.parametrize(("is_left", "expected"), [(True, Unavailable), (False, EngineFailed)])
async def test_a_call_that_cannot_be_made_is_an_error(
    error: BaseException, is_left: bool, expected: type[TokenwireError]
) -> None:
    """As when the session ended meanwhile: calls to other workers have results."""
    session = Session("nowhere", "test", accept)

    async def call(stub: Any) -> None:
        session.is_connected = not is_left
        raise error

    with pytest.raises(expected):
        await call_worker(session, call)


async def test_an_answer_that_cannot_be_read_violates_the_protocol() -> None:
    """gRPC returns nothing for it."""

    async def call(stub: Any) -> None:
        return None

    with pytest.raises(ProtocolError, match="malformed"):
        await call_worker(Session("nowhere", "test", accept), call)


async def test_a_cancelled_caller_is_cancelled() -> None:
    """Even if the session ends at the same time."""
    session, called = Session("nowhere", "test", accept), asyncio.Event()

    async def call(stub: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    calling = asyncio.create_task(call_worker(session, call))
    await called.wait()
    session.is_connected = False
    calling.cancel()

    with pytest.raises(asyncio.CancelledError):
        await calling
