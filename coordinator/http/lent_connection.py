"""uvicorn connections that are lent to routes, so that these write without a task switch.

A streamed token costs about half as much when the frame loop writes straight to the transport
instead of waking a task that calls ASGI's send. `lending_protocol` lends the transport to the route
that is being served; under any other ASGI server `AsgiConnection` does the same by portable means.
"""

import asyncio
import contextlib
import fcntl
import math
import struct
import termios
from collections.abc import Callable

from tokenwire.coordinator.http.backlog import DEFAULT_BACKLOG_BYTES, Backlog
from tokenwire.coordinator.http.bounded_protocol import BoundedProtocol, ProtocolLimits
from tokenwire.coordinator.http.connection import CONNECTION_EXTENSION, ignore
from tokenwire.coordinator.http.receiving import ReceivingMemory
from tokenwire.coordinator.http.write_batch import BatchedTransport, WriteBatch

_HIGH_WATER = 64 * 1024
"""Bytes that a transport may buffer before the connection is congested; the default of TLS is eight times as much."""
_STALL_CHECKS = 4
"""Checks of a slow reader's progress per stall timeout."""
_DEFAULT_LIMITS = ProtocolLimits()


class LentConnection:
    """A uvicorn transport with direct writes."""

    __slots__ = (
        "_backlog",
        "_batch",
        "_on_drained",
        "_on_lost",
        "_stall_timeout_s",
        "_stall_timer",
        "_transport",
        "_unread",
        "congested",
        "held_bytes",
        "lost",
        "share",
        "was_cut",
    )

    def __init__(
        self, transport: asyncio.Transport, batch: WriteBatch, stall_timeout_s: float, backlog: Backlog
    ) -> None:
        self._backlog = backlog
        self.share = ""
        self.held_bytes = 0
        self._transport = transport
        self._batch = batch
        self._stall_timeout_s = stall_timeout_s
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self._on_lost = self._on_drained = ignore
        self.congested = False
        self.lost = False
        self.was_cut = False

    def watch(self, on_lost: Callable[[], None], on_drained: Callable[[], None]) -> None:
        """Register callbacks for a disconnect and for a reader that caught up."""
        self._on_lost, self._on_drained = on_lost, on_drained
        if self.lost:
            on_lost()

    def write(self, data: bytes) -> None:
        """Write one HTTP chunk."""
        if data and not self.lost:  # an empty chunk would end the body
            self._batch.add(self._transport, b"%x\r\n%b\r\n" % (len(data), data))

    def hold(self, size_bytes: int) -> None:
        """Update the buffered bytes; beyond the limits it is cut, or others are."""
        if not self.was_cut:  # of which nothing is kept
            self._backlog.hold(self, size_bytes)

    def cut(self) -> None:
        """Close the connection after what was written, without the last chunk."""
        self.was_cut = True
        if self.held_bytes:
            self._backlog.hold(self, 0)
        self._batch.flush_one(self._transport)
        self._transport.abort()

    async def flush(self) -> None:
        """Return: what is sent through ASGI joins the same batch."""

    def release(self) -> None:
        """Stop watching."""
        self._on_lost = self._on_drained = ignore
        if self.held_bytes:
            self.hold(0)

    # Called by the protocol.

    def paused(self) -> None:
        """Mark the reader as slow, and start the stall timeout."""
        self.congested = True
        self._unread = 0  # the first check counts: the writes of this iteration are not complete yet
        self._check_later(_STALL_CHECKS)

    def resumed(self) -> None:
        """Mark the reader as caught up."""
        self.congested = False
        self._stop_timer()
        self._on_drained()

    def disconnected(self) -> None:
        """Mark the client as disconnected."""
        self.lost = True
        self._stop_timer()
        self._on_lost()

    def _check_later(self, checks_left: int) -> None:
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_later(self._stall_timeout_s / _STALL_CHECKS, self._check_stall, checks_left)

    def _check_stall(self, checks_left: int) -> None:
        # A slow network may take minutes to drain a buffer, which is not a stall.
        before, self._unread = self._unread, self._count_unread()
        if self._unread < before:
            self._check_later(_STALL_CHECKS - 1)
        elif checks_left:
            self._check_later(checks_left - 1)
        else:
            self.cut()

    def _count_unread(self) -> int:
        """Return the bytes not yet acknowledged by the client, here and in the kernel."""
        in_kernel = bytes(4)
        with contextlib.suppress(OSError):
            in_kernel = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
        return self._transport.get_write_buffer_size() + int(struct.unpack("i", in_kernel)[0])

    def _stop_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def lending_protocol(
    stall_timeout_s: float,
    limits: ProtocolLimits = _DEFAULT_LIMITS,
    max_backlog_bytes: int = DEFAULT_BACKLOG_BYTES,
    max_receiving_bytes: float = math.inf,
) -> type[BoundedProtocol]:
    """Return a uvicorn HTTP protocol class that lends its transport to the routes."""

    batch, backlog = WriteBatch(), Backlog(max_backlog_bytes)
    receiving = ReceivingMemory(max_receiving_bytes)

    class LendingProtocol(BoundedProtocol):
        connection: LentConnection
        read_limits = limits
        memory = receiving

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(BatchedTransport(transport, batch))
            transport.set_write_buffer_limits(high=_HIGH_WATER)
            self.connection = LentConnection(transport, batch, stall_timeout_s, backlog)
            self.extensions = {CONNECTION_EXTENSION: self.connection}

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.connection.disconnected()

        def pause_writing(self) -> None:
            super().pause_writing()
            self.connection.paused()

        def resume_writing(self) -> None:
            super().resume_writing()
            self.connection.resumed()

    return LendingProtocol
