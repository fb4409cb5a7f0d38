"""Appends are written in order, in the background; what fails or is too much is dropped, and fails no request."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.workers import until
from tokenwire.coordinator.trajectories import write_queue
from tokenwire.coordinator.trajectories.store import SessionKey
from tokenwire.coordinator.trajectories.write_queue import Append, WriteQueue
from tokenwire.errors import Unavailable

KEY = ("acme", "s")


class Written:
    """A store that can fail, or take its time."""

    def __init__(self, max_bytes: int = 100) -> None:
        self.events: list[bytes] = []
        self.dropped: list[SessionKey] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: Exception | None = None
        self.queue = WriteQueue(self._write, max_bytes, self.dropped.append)

    async def _write(self, batch: Sequence[Append]) -> None:
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        self.events += [each.event for each in batch]


async def test_appends_are_written_in_order() -> None:
    """A flush waits for them."""
    written = Written()
    for event in (b"1", b"2", b"3"):
        written.queue.put(KEY, event)
    await written.queue.flush()

    assert written.events == [b"1", b"2", b"3"]
    await written.queue.close()


async def test_what_there_is_no_room_for_is_dropped() -> None:
    """By bytes; there is room again once it is written."""
    written = Written(max_bytes=40)
    written.goes_on.clear()
    for event in (b"x" * 6, b"y" * 6):
        written.queue.put(KEY, event)
    written.goes_on.set()
    await written.queue.flush()
    written.queue.put(KEY, b"z" * 6)
    await written.queue.flush()

    assert written.events == [b"x" * 6, b"z" * 6]
    assert written.dropped == [KEY]
    await written.queue.close()


async def test_a_large_event_is_written_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Unless there is no room for it at all: the log says so."""
    written = Written(max_bytes=40)
    written.queue.put(KEY, b"x" * 40)
    await written.queue.flush()
    written.queue.put(KEY, b"y" * 41)
    await written.queue.settle()

    assert written.events == [b"x" * 40]
    assert written.dropped == [KEY]
    assert [record.getMessage() for record in caplog.records] == [
        "events of sessions are not stored: one has 41 bytes, which are more than --trajectories-mb"
    ]
    await written.queue.close()


async def test_a_store_that_fails_gets_later_events(caplog: pytest.LogCaptureFixture) -> None:
    """The log says once that it failed, and that it works again."""
    written = Written()
    written.error = OSError("No space left on device")
    for event in (b"1", b"2"):
        written.queue.put(KEY, event)
        await written.queue.settle()
    written.error = None
    written.queue.put(KEY, b"3")
    await written.queue.flush()

    assert written.events == [b"3"]
    assert written.dropped == [KEY, KEY]
    assert [record.getMessage() for record in caplog.records] == [
        "events of sessions are not stored: No space left on device",
        "sessions are stored again",
    ]
    await written.queue.close()


async def test_a_flush_says_that_not_everything_is_stored() -> None:
    """Until something is: a client has nothing else that tells it that it must not rely on what it sent."""
    written = Written()
    written.error = OSError(28, "No space left on device", "/secret")
    written.queue.put(KEY, b"1")
    await written.queue.settle()
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^The store of trajectories failed: No space left on device\.$"):
            await written.queue.flush()
    written.error = None
    written.queue.put(KEY, b"2")
    await written.queue.flush()
    await written.queue.close()


async def test_a_flush_says_what_failed_while_it_waited() -> None:
    """Though the store works again."""
    written = Written()
    written.goes_on.clear()
    written.queue.put(KEY, b"1")
    flush = asyncio.create_task(written.queue.flush())
    await asyncio.sleep(0)
    written.error = OSError("No space left on device")
    written.goes_on.set()
    await until(lambda: bool(written.dropped))
    written.error = None
    written.queue.put(KEY, b"2")

    with pytest.raises(Unavailable):
        await flush
    await written.queue.close()


async def test_whoever_waits_for_an_event_hears_whether_it_is_stored() -> None:
    """Not of others, and no longer than readers wait."""
    written = Written(max_bytes=40)
    await written.queue.store(KEY, b"1")
    assert written.events == [b"1"]
    with pytest.raises(Unavailable, match="41 bytes"):
        await written.queue.store(KEY, b"x" * 41)
    await written.queue.store(KEY, b"2")
    written.error = OSError("No space left on device")
    with pytest.raises(Unavailable):
        await written.queue.store(KEY, b"3")

    assert written.events == [b"1", b"2"]
    assert written.queue.dropped == 2
    await written.queue.close()


async def test_whoever_gave_up_waiting_ends_no_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes later is written."""
    written = Written()
    written.goes_on.clear()
    monkeypatch.setattr(write_queue, "_WAIT_S", 0.01)
    for error in (None, OSError("No space left on device")):
        with pytest.raises(Unavailable, match="does not answer"):
            await written.queue.store(KEY, b"1")
        written.error = error
        written.goes_on.set()
        await written.queue.settle(1.0)
        written.goes_on.clear()
    written.error = None
    written.goes_on.set()
    await written.queue.store(KEY, b"2")

    assert written.events == [b"1", b"2"]
    await written.queue.close()


async def test_readers_do_not_wait_long() -> None:
    """For a store that does not answer."""
    written = Written()
    written.goes_on.clear()
    written.queue.put(KEY, b"1")

    with pytest.raises(Unavailable, match="Try again"):
        await written.queue.settle(0.01)
    written.goes_on.set()
    await written.queue.close()
