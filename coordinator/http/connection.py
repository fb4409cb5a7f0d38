"""HTTP connections for routes: disconnects, slow readers, and writes, by any ASGI server's means."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Send

CONNECTION_EXTENSION = "tokenwire.connection"
"""The key of a lent connection among the ASGI extensions; see lent_connection.py."""
_ASGI_HIGH_WATER = 64 * 1024
"""Bytes that an ASGI server may buffer for a slow reader before the connection is congested."""


class Connection(Protocol):
    """The client's side of one request."""

    share: str
    """Whose share of what clients may leave unread it takes."""

    @property
    def congested(self) -> bool:
        """Whether the reader is slow."""

    @property
    def lost(self) -> bool:
        """Whether the client has disconnected."""

    @property
    def was_cut(self) -> bool:
        """Whether the connection was cut because the client read too slowly."""

    def watch(self, on_lost: Callable[[], None], on_drained: Callable[[], None]) -> None:
        """Register callbacks for a disconnect (called at once if it has happened) and for a reader that caught up."""

    def write(self, data: bytes) -> None:
        """Write a part of the response's body. The response must have been started through ASGI."""

    def hold(self, size_bytes: int) -> None:
        """Set the bytes buffered for this slow reader. Beyond the limits it is cut, or one of who has most."""

    def cut(self) -> None:
        """Abort the connection, so that the client does not take the response for complete."""

    async def flush(self) -> None:
        """Return when the end of the response may be sent through ASGI."""

    def release(self) -> None:
        """Stop watching."""


class AsgiConnection:
    """The portable implementation: one task waits for the disconnect, another one sends."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._unsent = 0
        self._on_lost = self._on_drained = ignore
        self._tasks: list[asyncio.Task[Any]] = []
        self.share = ""
        self.lost = False
        self.was_cut = False

    @property
    def congested(self) -> bool:
        """Whether too much written data is unsent."""
        return self._unsent > _ASGI_HIGH_WATER

    def watch(self, on_lost: Callable[[], None], on_drained: Callable[[], None]) -> None:
        """Register callbacks for a disconnect and for a reader that caught up."""
        self._on_lost, self._on_drained = on_lost, on_drained
        self._tasks = [asyncio.create_task(self._wait_lost()), asyncio.create_task(self._send_all())]

    def write(self, data: bytes) -> None:
        """Queue a part of the body."""
        self._unsent += len(data)
        self._queue.put_nowait(data)

    def hold(self, size_bytes: int) -> None:
        """Do nothing: the ASGI server has its own limits."""

    def cut(self) -> None:
        """Stop sending: ASGI cannot abort a connection."""
        self.was_cut = True
        self.release()

    async def flush(self) -> None:
        """Wait until everything is sent, or the client has disconnected."""
        joining = asyncio.create_task(self._queue.join())
        await asyncio.wait([joining, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        joining.cancel()

    def release(self) -> None:
        """End both tasks."""
        self._on_lost = self._on_drained = ignore
        for task in self._tasks:
            task.cancel()

    async def _wait_lost(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.lost = True
        self._on_lost()

    async def _send_all(self) -> None:
        with contextlib.suppress(OSError):  # the client disconnected
            while True:
                data = await self._queue.get()
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
                was_congested = self.congested  # checked after the send, which may have changed it
                self._unsent -= len(data)
                self._queue.task_done()
                if was_congested and not self.congested:
                    self._on_drained()


def ignore() -> None:
    """Do nothing: the callback of a connection that is not watched."""
