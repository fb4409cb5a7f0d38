"""The events of a response in the background."""

import asyncio

import pytest

from tests.coordinator.fakes import request_context
from tokenwire.coordinator.api.responses.event_log import EventLog, LogStream
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


async def test_a_log_that_was_stored_is_read_again() -> None:
    """With the numbers that it had."""
    log = EventLog.replay(logged_events(2, 3), 2)

    assert await read_log(log, 2) == logged(3)
    with pytest.raises(InvalidRequest):
        log.check(-1)


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
