"""Writes of one iteration of the event loop, gathered: one system call for each connection.

uvloop writes at once, so the head of a response, each of its chunks and its end would be a call of their own. And a
frame's tokens are first decoded for all streams and then sent for all streams: system calls in between would cost
another fifth, because each evicts the caches that the next decoding needs.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

log = logging.getLogger(__name__)

_WRITTEN_AT_ONCE = 64 * 1024
"""A piece of this size is worth a system call of its own, and must not be copied or kept."""

Data = bytes | bytearray | memoryview


class WriteBatch:
    """What is written to transports in one iteration of the event loop, until its end."""

    __slots__ = ("_loop", "_pending")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[asyncio.Transport, Data | list[Data]] = {}
        """A list only where there are several pieces, which a token of a stream seldom has."""

    def add(self, transport: asyncio.Transport, data: Data) -> None:
        """Write data to a transport before the loop waits again."""
        pending = self._pending
        if transport in pending:
            before = pending[transport]
            if isinstance(before, list):
                before.append(data)
            else:
                pending[transport] = [before, data]
            return
        if not pending:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self.flush)
        pending[transport] = data

    def flush(self) -> None:
        """Write everything now."""
        pending, self._pending = self._pending, {}
        _write_all(pending.items())

    def flush_one(self, transport: asyncio.Transport) -> None:
        """Write now what one transport has been given."""
        data = self._pending.pop(transport, None)
        if data is not None:
            _write_all([(transport, data)])

    def drop(self, transport: asyncio.Transport) -> None:
        """Forget what one transport has been given."""
        self._pending.pop(transport, None)


def _write_all(written: Iterable[tuple[asyncio.Transport, Data | list[Data]]]) -> None:
    """Write to transports, of which each that fails is aborted; one may have been closed since."""
    for transport, data in written:
        try:
            if isinstance(data, list):
                transport.writelines(data)
            else:
                transport.write(data)
        except Exception:
            if not transport.is_closing():
                log.exception("write to a connection failed")
                transport.abort()


class BatchedTransport(asyncio.Transport):
    """A transport whose writes join a batch. It stands for another one in the HTTP protocol, in the order of writes."""

    __slots__ = ("_batch", "_transport")

    def __init__(self, transport: asyncio.Transport, batch: WriteBatch) -> None:
        self._transport = transport
        self._batch = batch

    def write(self, data: Data) -> None:
        """Write data before the loop waits again; a large piece at once, so that its writer learns of a slow reader."""
        if len(data) < _WRITTEN_AT_ONCE:
            self._batch.add(self._transport, data)
        else:
            self._batch.flush_one(self._transport)
            if not self._transport.is_closing():  # by the write before, if the client is gone
                self._transport.write(data)

    def close(self) -> None:
        """Close it after what was written."""
        self._batch.flush_one(self._transport)
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._batch.drop(self._transport)
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether it was closed, or its client has gone."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the socket, its addresses and others."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Read nothing."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()
