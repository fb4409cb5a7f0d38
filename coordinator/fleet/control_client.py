"""Control calls to a worker, with gRPC errors translated to TokenwireError."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.transport.grpc import check_cancelled
from tokenwire.errors import EngineFailed, ProtocolError, Unavailable, from_status
from tokenwire.peer_auth.message_parts import UNREADABLE
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2

ResponseT = TypeVar("ResponseT")
ControlCall = Callable[[control_pb2_grpc.ControlStub], Awaitable[ResponseT]]


async def call_worker(session: WorkerSession, call: ControlCall[ResponseT]) -> ResponseT:
    """Make a control call to a session's worker. Raises Unavailable without a connection, or the worker's error."""
    control = session.control
    if control is None:
        raise Unavailable(f"not connected: {session.last_error}")
    try:
        answer = await call(control)
    except grpc.aio.AioRpcError as error:
        check_cancelled()
        raise from_status(error.code(), error.details() or error.code().name) from error
    except (grpc.aio.UsageError, asyncio.CancelledError) as error:
        check_cancelled()
        if session.control is None:  # the session ended meanwhile and closed the channel
            raise Unavailable(f"disconnected: {session.last_error}") from error
        raise EngineFailed(f"The control call failed: {error!r}") from error
    if answer is None:
        raise ProtocolError(f"it answered a control call with {UNREADABLE}")
    return answer


def adopt_state(
    target: inference_pb2.ServingState | None, timeout_s: float
) -> ControlCall[control_pb2.AdoptStateResponse]:
    """Return the call that brings a worker to a desired state."""
    request = control_pb2.AdoptStateRequest(target=target)
    return lambda stub: stub.AdoptState(request, timeout=timeout_s)
