"""Appends to a slow store in the background: in order, bounded in number and bytes, and failing no reply."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tokenwire.coordinator.shared_redis import PAUSE_S, no_answer
from tokenwire.coordinator.trajectories.store import OnDropped, SessionKey
from tokenwire.errors import Unavailable

log = logging.getLogger(__name__)


class Append(NamedTuple):
    """An event of a session."""

    key: SessionKey
    event: bytes
    takes_reserve: bool = False
    stored: asyncio.Future[None] | None = None
    """Somebody waits until it is."""


STORE = "The store of trajectories"
"""In errors."""
_MOST_AT_ONCE = 256
_MOST_QUEUED = 16 * 1024
_QUEUED_PART = 4
"""The part of the sessions' size that may wait to be written, unless it is a single event."""
_WAIT_S = 2.0
"""Readers wait no longer for what is about to be written."""
_CLOSE_S = 10.0


class WriteQueue:
    """Collects appends and lets a function write them, some at a time."""

    def __init__(
        self, write: Callable[[Sequence[Append]], Awaitable[None]], max_bytes: int, on_dropped: OnDropped
    ) -> None:
        """`write` raises whatever it wants: then its appends are dropped, and said to be; `max_bytes`: of sessions."""
        self._write = write
        self._max_bytes = max_bytes
        self._on_dropped = on_dropped
        self._queue: asyncio.Queue[Append] = asyncio.Queue(_MOST_QUEUED)
        self._bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._failure: str | None = None
        """Why the last event was not stored; None if it was."""
        self.dropped = 0
        """How many were."""

    def put(self, key: SessionKey, event: bytes) -> None:
        """Queue an event; what there is no room for is dropped."""
        self._put(Append(key, event))

    async def store(self, key: SessionKey, event: bytes) -> None:
        """Queue an event that takes the reserve, and wait until it is written. Raises Unavailable."""
        stored = asyncio.get_running_loop().create_future()
        self._put(Append(key, event, takes_reserve=True, stored=stored))
        try:
            await asyncio.wait_for(stored, _WAIT_S)
        except TimeoutError as error:
            raise no_answer(STORE) from error

    def _put(self, append: Append) -> None:
        event = append.event
        if len(event) > self._max_bytes:
            self._refuse(append, f"one has {len(event)} bytes, which are more than --trajectories-mb")
            return
        if self._queue.full() or (self._bytes and self._bytes + len(event) > self._max_bytes // _QUEUED_PART):
            self._refuse(append, "they come faster than they are written")
            return
        if self._writer is None:
            self._writer = asyncio.create_task(self._run())
        self._bytes += len(event)
        self._queue.put_nowait(append)

    async def flush(self) -> None:
        """Wait until everything is written. Raises Unavailable if some of it was dropped, or that takes long, or
        nothing has been stored since something was dropped.
        """
        before = self.dropped
        await self.settle()
        if self._failure is not None:
            raise _unstored(self._failure)
        if self.dropped > before:
            raise _unstored(f"{STORE} failed, and works again: not everything is stored.")

    async def settle(self, timeout_s: float = _WAIT_S) -> None:
        """Wait until everything is written, or was dropped. Raises Unavailable if that takes long."""
        try:
            await asyncio.wait_for(self._queue.join(), timeout_s)
        except TimeoutError as error:
            raise no_answer(STORE) from error

    async def close(self) -> None:
        """Write what is queued, if the store is quick enough, and end."""
        if self._writer is None:
            return
        try:
            await self.settle(_CLOSE_S)
        except Unavailable:
            log.warning("%d events of sessions are not stored", self._queue.qsize())
        self._writer.cancel()

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._write(batch)
                self._on_written(batch)
            except Exception as error:  # no answer of a store may end the writer
                self._drop(batch, str(error) or "no answer", store_failed(error).message)
            finally:
                self._bytes -= sum(len(each.event) for each in batch)
                for _ in batch:
                    self._queue.task_done()

    def _on_written(self, batch: Sequence[Append]) -> None:
        if self._failure is not None:
            log.warning("sessions are stored again")
        self._failure = None
        for each in batch:
            if each.stored is not None and not each.stored.done():
                each.stored.set_result(None)

    def _refuse(self, append: Append, reason: str) -> None:
        self._drop([append], reason, f"Events of sessions are not stored: {reason}.")

    def _drop(self, appends: Sequence[Append], reason: str, failure: str) -> None:
        if self._failure is None:
            log.warning("events of sessions are not stored: %s", reason)
        self._failure = failure
        self.dropped += len(appends)
        for each in appends:
            self._on_dropped(each.key)
            if each.stored is not None and not each.stored.done():
                each.stored.set_exception(_unstored(failure))


def store_failed(error: Exception) -> Unavailable:
    """Return what whoever needs the store is told of an error, which may name files."""
    if isinstance(error, Unavailable):
        return error
    reason = error.strerror if isinstance(error, OSError) else None
    return _unstored(f"{STORE} failed: {reason or 'see the log'}.")


def _unstored(message: str) -> Unavailable:
    return Unavailable(message, retry_after_s=PAUSE_S)
