"""What a session needs of its transport: commands go in, events come out, and control calls beside them."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from tokenwire.v1 import control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb


class WorkerTransport(Protocol):
    """One connection to one worker, from its first command to its end. Methods raise TokenwireError, saying why."""

    @property
    def control(self) -> control_pb2_grpc.ControlStub:
        """The worker's control calls."""

    async def read(self) -> pb.SessionResponse | None:
        """Return the worker's next event, the first one a welcome; None when the worker has closed."""

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """Return the files of the worker's tokenizer by name."""

    async def close(self) -> None:
        """Hang up: the worker aborts what still runs."""


Commands = AsyncIterator[pb.SessionRequest]
OpenTransport = Callable[[str, Commands], WorkerTransport]
"""Begins a transport with the worker at an address."""
