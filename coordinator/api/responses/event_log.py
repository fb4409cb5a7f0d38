"""The events of a response in the background: kept within a limit, and read by any number of clients."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.respond import STREAM_HEADERS
from tokenwire.coordinator.http.connection import Connection, ignore
from tokenwire.errors import InvalidRequest

_END = b"\n\n"


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

    @classmethod
    def replay(cls, events: bytes, first: int) -> "EventLog":
        """Return the log of a stream that has ended."""
        log = cls(len(events))
        log.first = first
        log.write(events)
        log.end()
        return log

    def write(self, data: bytes) -> None:
        """Add events, complete or the next piece of one; the last of its pieces is its end."""
        if self._ended:
            return
        self._pieces.append(data)
        if not data.endswith(_END):
            return
        data, self._pieces = b"".join(self._pieces), []
        for event in data.split(_END)[:-1]:
            self._events.append(event + _END)
            self._size += len(event) + len(_END)
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
        if after + 1 < self.first:
            raise InvalidRequest(
                f"The events of this response before number {self.first} are no longer kept: retrieve it whole, or "
                f"with `starting_after` from {self.first - 1} on.",
                param="starting_after",
            )

    async def read(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after a number, as they come; end early for a reader that is too slow to get all."""
        number = after + 1
        while number >= self.first:
            place = number - self.first
            if place < len(self._events):
                count = len(self._events) - place  # from the right: a reader that keeps up is near the end
                events = list(islice(reversed(self._events), count))[::-1]
                number += len(events)
                yield b"".join(events)
            elif self._ended:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LogStream(Response):
    """Streams a log to one client, which may leave and come back."""

    media_type = "text/event-stream"

    def __init__(self, log: EventLog, connection: Connection, after: int = -1) -> None:
        """Raises InvalidRequest if events after that number are not kept."""
        super().__init__()
        log.check(after)
        self.raw_headers = list(STREAM_HEADERS)
        self._log = log
        self._connection = connection
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending = asyncio.create_task(self._send(send))
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

    async def _send(self, send: Send) -> None:
        async for events in self._log.read(self._after):
            await send({"type": "http.response.body", "body": events, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
