"""The events of a response in the background: kept within a limit, and read by any number of clients."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.as_read import PART_BYTES, byte_parts, send_as_read
from tokenwire.coordinator.api.respond import STREAM_HEADERS
from tokenwire.coordinator.http.connection import Connection, ignore
from tokenwire.errors import InvalidRequest

END = b"\n\n"
"""Of each event."""


class Log(Protocol):
    """Numbered events that a client may read from any of those on that are kept."""

    def check(self, after: int) -> None:
        """Check that the events after a number are kept. Raises InvalidRequest."""

    def read(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after a number, in parts."""


class EventLog:
    """The Sink of a response's events. Beyond its limit it drops the oldest ones."""

    congested = False

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._events: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        """Of an event that is not complete."""
        self._size = 0
        self._changed = asyncio.Event()
        self._ended = False
        self.first = 0
        """The number of the first event that is kept."""

    def write(self, data: bytes) -> None:
        """Add events, complete or the next piece of one; the last of its pieces is its end."""
        if self._ended:
            return
        self._pieces.append(data)
        if not data.endswith(END):
            return
        data, self._pieces = b"".join(self._pieces), []
        for event in data.split(END)[:-1]:
            self._events.append(event + END)
            self._size += len(event) + len(END)
        while self._size > self._limit_bytes:
            self._size -= len(self._events.popleft())
            self.first += 1
        self._wake()

    def hold(self, size_bytes: int) -> None:
        """Hold nothing: it is never congested."""

    def end(self) -> None:
        """End the streams of all readers after the events so far."""
        self._ended = True
        self._wake()

    def kept(self) -> bytes:
        """Return all events that are kept."""
        return b"".join(self._events)

    def check(self, after: int) -> None:
        """Check that the events after a number are kept. Raises InvalidRequest."""
        check_kept(self.first, after, self.first + len(self._events) if self._ended else None)

    async def read(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after a number, as they come, in parts; end early for a reader too slow to get all."""
        number = after + 1
        while number >= self.first:
            if number - self.first < len(self._events):
                events = self._some(number)
                number += len(events)
                for part in byte_parts(b"".join(events)):  # several are one part
                    yield part
            elif self._ended:
                return
            else:
                await self._changed.wait()

    def _some(self, number: int) -> list[bytes]:
        """Return the event of a number, and as many after it as make one part."""
        events, size = [self._events[number - self.first]], 0
        for place in range(number - self.first + 1, len(self._events)):
            size += len(events[-1])
            if size + len(self._events[place]) > PART_BYTES:
                break
            events.append(self._events[place])
        return events

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def check_kept(first: int, after: int, end: int | None = None) -> None:
    """Check that the events after a number are kept. Raises InvalidRequest.

    first: the number of the first one that is kept. end: that behind the last one; None: more may come.
    """
    if after + 1 < first:
        raise InvalidRequest(
            f"The events of this response before number {first} are no longer kept: retrieve it whole, or "
            f"with `starting_after` from {first - 1} on.",
            param="starting_after",
        )
    if end is not None and after >= end > 0:
        raise InvalidRequest(
            f"`starting_after` is {after}, but the last event of this response has the number {end - 1}.",
            param="starting_after",
        )


class LogStream(Response):
    """Streams a log to one client, which may leave and come back."""

    media_type = "text/event-stream"

    def __init__(self, log: Log, connection: Connection, after: int = -1) -> None:
        """Raises InvalidRequest if events after that number are not kept."""
        super().__init__()
        log.check(after)
        self.raw_headers = list(STREAM_HEADERS)
        self._log = log
        self._connection = connection
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(send_as_read(send, self._log.read(self._after)))
        self._connection.watch(on_lost=lambda: _cancel(sending), on_drained=ignore)
        try:
            await asyncio.wait([sending])
        except asyncio.CancelledError:
            if context_of(scope).drain_error is None:
                sending.cancel()
                raise
            await asyncio.wait([sending])  # the log is about to end, with the error
        finally:
            self._connection.release()
        if not sending.cancelled():
            sending.result()


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
