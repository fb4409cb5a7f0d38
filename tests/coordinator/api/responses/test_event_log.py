"""The events of a response in the background."""

import asyncio

import pytest

from tests.coordinator.fakes import request_context
from tokenwire.coordinator.api.as_read import PART_BYTES
from tokenwire.coordinator.api.responses.event_log import END, EventLog, LogStream
from tokenwire.errors import InvalidRequest


def logged(number: int) -> bytes:
    """Return an event."""
    return b"data: %d\n\n" % number


def logged_events(*numbers: int) -> bytes:
    """Return several events."""
    return b"".join(map(logged, numbers))


async def read_log(log: EventLog, after: int = -1) -> bytes:
    """Read a log to its end."""
    return b"".join([each async for each in log.read(after)])


async def test_readers_get_all_events_from_any_number_on() -> None:
    """Those that come before the log is written, and those that come later."""
    log = EventLog(1000)
    early = asyncio.create_task(read_log(log))
    log.write(logged_events(0, 1))
    await asyncio.sleep(0)
    log.write(logged(2))
    log.end()
    log.write(logged(3))

    assert await early == await read_log(log) == log.kept() == logged_events(0, 1, 2)
    assert await read_log(log, 0) == logged_events(1, 2)
    assert await read_log(log, 7) == b""


async def test_a_full_log_drops_the_oldest_events() -> None:
    """A reader that asks for them gets an error that names the first one that is kept."""
    log = EventLog(3 * len(logged(0)))
    log.write(logged_events(0, 1, 2, 3, 4))
    log.end()

    assert (log.first, log.kept()) == (2, logged_events(2, 3, 4))
    log.check(1)
    assert await read_log(log, 1) == logged_events(2, 3, 4)
    with pytest.raises(InvalidRequest, match="before number 2") as raised:
        log.check(0)
    assert raised.value.param == "starting_after"


async def test_only_a_log_that_has_ended_has_a_last_number() -> None:
    """Before, an event of any number may come; a log that ended without any has none."""
    log, empty = EventLog(1000), EventLog(1000)
    log.write(logged_events(0, 1))
    log.check(7)
    log.end()
    empty.end()

    log.check(1)
    empty.check(-1)
    empty.check(0)
    with pytest.raises(InvalidRequest, match=r"is 2, .* has the number 1") as raised:
        log.check(2)
    assert raised.value.param == "starting_after"


async def test_readers_take_a_part_at_a_time() -> None:
    """Small events come together, whole; a large one alone, in parts. Who reads slowly misses what is dropped."""
    large = b"data: %b\n\n" % (b"x" * 3 * PART_BYTES)
    small = [b"data: %d %b\n\n" % (number, b"x" * 20_000) for number in range(8)]
    log = EventLog(len(large) + sum(map(len, small)))
    log.write(b"".join([*small[:4], large, *small[4:]]))
    reading = log.read(-1)

    parts = [await anext(reading) for _ in range(6)]
    assert b"".join(parts) == b"".join([*small[:4], large])
    assert [part.endswith(END) for part in parts] == [True, True, False, False, False, True]
    assert max(map(len, parts)) <= PART_BYTES

    log.write(large)
    log.write(large)
    assert [part async for part in reading] == []


async def test_an_event_may_come_in_pieces() -> None:
    """It is one once its end has come."""
    log = EventLog(1000)
    for piece in (logged(0), b"event: e\n", b"data: 1", b"\n\n"):
        log.write(piece)
    log.end()

    assert log.kept() == logged(0) + b"event: e\ndata: 1\n\n"
    assert await read_log(log, 0) == b"event: e\ndata: 1\n\n"


async def test_proxies_do_not_hold_events_back() -> None:
    """As those of any other stream."""
    headers = LogStream(EventLog(1000), request_context().connection).headers

    assert headers["x-accel-buffering"] == "no"
    assert headers["content-type"].startswith("text/event-stream")
