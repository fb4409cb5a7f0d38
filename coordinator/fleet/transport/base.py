"""The transport interface of a session: commands in, events out, and control calls."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from tokenwire.v1 import control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb


class WorkerTransport(Protocol):
    """One connection to one worker, from its first command to its end. Methods raise TokenwireError."""

    @property
    def sends_steps(self) -> bool:
        """Whether frames are steps of an engine, so that the time between them tells how fast it is."""

    @property
    def control(self) -> control_pb2_grpc.ControlStub:
        """The stub for the worker's control calls."""

    @property
    def media(self) -> inference_pb2_grpc.MediaStub | None:
        """The stub for putting media; None for a worker that takes none."""

    async def read(self) -> pb.SessionResponse | None:
        """Return the worker's next event, the first one a welcome; None when the worker closed the connection."""

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """Return the files of the worker's tokenizer by name."""

    async def close(self) -> None:
        """Close the connection: the worker aborts all requests of the session."""


class CommandQueue:
    """The commands of one session, in order. Not a generator, because gRPC leaves it in the middle of `anext`."""

    def __init__(self) -> None:
        self._commands: deque[pb.SessionRequest | None] = deque()
        self._arrival: asyncio.Future[None] | None = None
        """What a reader of an empty queue waits for."""

    def put(self, command: pb.SessionRequest | None) -> None:
        """Add a command."""
        self._commands.append(command)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def close(self) -> None:
        """End the iteration after the commands so far: gRPC ends its reading task only when it cancels a call."""
        self.put(None)

    def take_ready(self) -> pb.SessionRequest | None:
        """Return the next command if it is there already."""
        return self._commands.popleft() if self._commands and self._commands[0] is not None else None

    def __aiter__(self) -> "CommandQueue":
        return self

    async def __anext__(self) -> pb.SessionRequest:
        while not self._commands:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        command = self._commands.popleft()
        if command is None:
            raise StopAsyncIteration
        return command


Commands = AsyncIterator[pb.SessionRequest]
OpenTransport = Callable[[str, CommandQueue], WorkerTransport]
"""Opens a transport to the worker at an address."""
