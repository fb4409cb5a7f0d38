"""The context of one HTTP request: made by the middleware, read and filled in by routes and generation."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.request_handle import RequestHandle
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.http.connection import Connection
from tokenwire.coordinator.http.content_coding import Decoder
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.errors import DeadlineExceeded, Unavailable

CONTEXT = "tokenwire.context"
"""The key of the context in an ASGI scope, where the middleware puts it."""


@dataclass(slots=True)
class RequestContext:
    """One request's headers, caller, deadline, record and connection, and the handle of its generation."""

    connection: Connection
    """The client's connection. Before it is watched, the request's body must have been read."""
    record: RequestRecord = field(default_factory=RequestRecord)
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Each header's first value."""
    readiness: Readiness = field(default_factory=Readiness)
    body: BodyMemory = field(default_factory=lambda: BodyMemory(BodyBudget()))
    """The memory of its body, until it is submitted or answered."""
    memory: MemoryClaim | None = None
    """What it takes from when it is placed until it ends; None before its submission."""
    decode: Decoder | None = None
    """Decompresses its body, if it came compressed."""
    caller: Caller = ANYBODY
    account: Account | None = None
    """Its caller's, if that is charged for the request."""
    deadline: float | None = None
    """When its generation ends at the latest, by the clock, however long it took until then; None: no limit."""
    clock: Callable[[], float] = time.monotonic
    handle: RequestHandle | None = None
    """The handle to abort it; None before its submission."""
    leave: Callable[[], None] | None = None
    """Ends its part of what its caller may have at a time; None: that has no limit."""
    goes_on: "asyncio.Future[None] | None" = None
    """What it goes on with in the background, after its response; only then its record is complete."""
    _preparing: asyncio.Timeout | None = None
    """Ends what is done before its submission at the deadline."""

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """End what is done here at the deadline, unless the request has been submitted. Raises DeadlineExceeded."""
        try:
            async with asyncio.timeout(self.time_left_s()) as self._preparing:
                yield
        except TimeoutError:
            if self._preparing is None or not self._preparing.expired():
                raise
            raise self.deadline_error from None
        finally:
            self._preparing = None  # a stream is submitted later

    def time_for_reply_s(self) -> float:
        """Return the time left to a request that is submitted: its reply has a timer. Raises DeadlineExceeded."""
        left_s = self.time_left_s()
        if self._preparing is not None:
            self._preparing.reschedule(None)
        return left_s

    def time_left_s(self) -> float:
        """Return the time until the deadline, infinite without one. Raises DeadlineExceeded after it."""
        left_s = math.inf if self.deadline is None else self.deadline - self.clock()
        if left_s <= 0:
            raise self.deadline_error
        return left_s

    def record_client(self) -> None:
        """Record how the client left, if it has."""
        if self.connection.lost:
            self.record.client = "client_slow" if self.connection.was_cut else "client_disconnected"

    @property
    def deadline_error(self) -> DeadlineExceeded:
        """The error for a request that is aborted at its deadline."""
        allowed_s = 0.0 if self.deadline is None else self.deadline - self.record.began_at
        return DeadlineExceeded(f"Request timed out after {allowed_s:g} s.")

    @property
    def drain_error(self) -> Unavailable | None:
        """The error for a request that is cancelled because a drain took too long; else None."""
        if not self.readiness.out_of_time:
            return None
        return Unavailable("This server shut down before the request was finished.", retry_after_s=1)
