"""The transport to a tokenwire worker: one gRPC stream."""

import asyncio
import math
import re

import grpc

from tokenwire.coordinator.fleet.transport.base import CommandQueue
from tokenwire.errors import ProtocolError, TokenwireError, Unavailable, from_status
from tokenwire.peer_auth.client import ChannelFactory
from tokenwire.peer_auth.message_parts import UNREADABLE
from tokenwire.protocol.command_batch import batch_of
from tokenwire.protocol.version import takes_batches
from tokenwire.v1 import control_pb2, control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

_MOST_COMMANDS = 64
_MOST_BYTES = 16 * 1024
"""Exceeded by the last command at most: what is long gains nothing, and joining copies it."""
_TOO_LARGE = ("CLIENT: Received message larger than max", "received metadata size exceeds")


def check_cancelled() -> None:
    """Raise CancelledError if the calling task is cancelled.

    A call that fails when its task is cancelled raises only its failure (grpcio 1.85): the task would go on.
    """
    if _is_cancelled():  # in a frame of its own: the task would be in the traceback of its own error, in a cycle
        raise asyncio.CancelledError


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_too_large(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a call failed because the worker sent more than is read."""
    details = error.details() or ""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and any(each in details for each in _TOO_LARGE)


def _size_of(error: grpc.aio.AioRpcError) -> float:
    """Return the size in MiB of a message that is too large."""
    found = re.search(r"larger than max \((\d+)", error.details() or "")
    return int(found[1]) / 2**20 if found else math.nan


class CommandBatches:
    """The messages of one session: its commands in order, and joined those that are ready at the same time.

    A message costs gRPC a system call, and the event loop a turn when it has been sent. Requests come together where a
    step ends many of them, whose clients send the next ones; what is ready while a message is being sent is the next.
    """

    def __init__(self, commands: CommandQueue) -> None:
        self.joins = False
        """Whether the worker takes batches, which its welcome tells."""
        self._commands = commands

    def __aiter__(self) -> "CommandBatches":
        return self

    async def __anext__(self) -> pb.SessionRequest:
        first = await anext(self._commands)
        return batch_of(self._with_ready(first)) if self.joins else first

    def _with_ready(self, first: pb.SessionRequest) -> list[pb.SessionRequest]:
        """Return a command and those that are ready after it."""
        joined, size = [first], first.ByteSize()
        while len(joined) < _MOST_COMMANDS and size < _MOST_BYTES:
            if (command := self._commands.take_ready()) is None:
                break
            joined.append(command)
            size += command.ByteSize()
        return joined


class GrpcTransport:
    """A channel with the session's stream."""

    sends_steps = True

    def __init__(self, channels: ChannelFactory, address: str, commands: CommandQueue) -> None:
        self._channels = channels
        self._channel = channels.open_channel(address)
        self._connected = False
        self.control = control_pb2_grpc.ControlStub(self._channel)
        self._commands = CommandBatches(commands)
        stub = inference_pb2_grpc.InferenceStub(self._channel)
        self._call = stub.Session(self._commands, metadata=channels.metadata())

    @property
    def media(self) -> inference_pb2_grpc.MediaStub:
        """The stub for putting media."""
        return inference_pb2_grpc.MediaStub(self._channel)

    async def read(self) -> pb.SessionResponse | None:
        """Return the next event of the stream."""
        try:
            event = await self._call.read()
        except grpc.aio.AioRpcError as error:
            check_cancelled()
            raise self._explain(error) from error
        if event is None:
            raise ProtocolError(f"it sent {UNREADABLE}")
        if not isinstance(event, pb.SessionResponse):
            return None
        if not self._connected:
            self._connected = True
            self._commands.joins = takes_batches(event.welcome.protocol)
        return event

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """Fetch the files from the worker."""
        try:
            response = await self.control.GetTokenizer(control_pb2.GetTokenizerRequest())
        except grpc.aio.AioRpcError as error:
            check_cancelled()
            if is_too_large(error):
                most = self._channels.most_tokenizer_bytes / 2**20
                raise ProtocolError(
                    f"its tokenizer files have {_size_of(error):.1f} MiB, more than the {most:g} of --max-tokenizer-mb"
                ) from error
            raise self._explain(error) from error
        if response is None:
            raise ProtocolError(f"its tokenizer files are {UNREADABLE}")
        return dict(response.files)

    async def close(self) -> None:
        """Cancel the stream, which ends the session."""
        self._call.cancel()
        await self._channel.close()

    def _explain(self, error: grpc.aio.AioRpcError) -> TokenwireError:
        explained = self._channels.explain(error)
        if explained is not None:
            return Unavailable(explained)
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            # The details list every address and errno, which adds nothing.
            return Unavailable("connection lost" if self._connected else "not reachable")
        if is_too_large(error):
            return ProtocolError(
                f"it sent a message of more than {self._channels.most_event_bytes / 2**20:g} MiB, an eighth of "
                "--max-request-mb"
            )
        return from_status(error.code(), error.details() or error.code().name)
