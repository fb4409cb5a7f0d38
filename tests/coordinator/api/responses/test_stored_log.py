"""Stored events, read by several clients."""

from dataclasses import replace

import pytest

from tests.coordinator.response_store.responses import RESPONSE
from tokenwire.coordinator.api.as_read import PART_BYTES
from tokenwire.coordinator.api.responses.stored_log import OpenLogs, StoredLog
from tokenwire.errors import InvalidRequest


def stored_event(number: int, size: int = 0) -> bytes:
    """Return an event."""
    return b"data: %d %b\n\n" % (number, b"x" * size)


async def read_parts(log: StoredLog, after: int = -1) -> list[bytes]:
    """Read a log to its end."""
    return [each async for each in log.read(after)]


@pytest.mark.parametrize("after", [1, 2, 3, 4])
async def test_events_are_read_from_any_number_on(after: int) -> None:
    """With the numbers that they had when they were stored; those before the first one are no longer kept."""
    log = StoredLog(stored_event(2) + stored_event(3) + stored_event(4), 2)

    log.check(after)
    assert b"".join(await read_parts(log, after)) == b"".join(
        stored_event(number) for number in (2, 3, 4) if number > after
    )
    with pytest.raises(InvalidRequest, match="before number 2") as raised:
        log.check(0)
    assert raised.value.param == "starting_after"


def test_there_is_nothing_after_events_that_never_were() -> None:
    """A client that asks for it has a wrong number; none after the last one is right."""
    log = StoredLog(stored_event(2) + stored_event(3), 2)

    log.check(3)
    with pytest.raises(InvalidRequest, match=r"is 4, .* has the number 3") as raised:
        log.check(4)
    assert raised.value.param == "starting_after"


async def test_readers_get_parts_of_bounded_size() -> None:
    """However large an event is, and however many there are."""
    events = stored_event(0, 5 * PART_BYTES) + b"".join(map(stored_event, range(1, 20_000)))
    log = StoredLog(events, 0)

    parts = await read_parts(log)
    assert b"".join(parts) == events
    assert max(map(len, parts)) == PART_BYTES
    assert b"".join(await read_parts(log, 19_997)) == stored_event(19_998) + stored_event(19_999)


def test_all_readers_of_a_response_share_its_events() -> None:
    """Also where the store returns them a copy each; a response without events has no log."""
    logs = OpenLogs()
    log = logs.of(replace(RESPONSE, events=stored_event(0) + stored_event(1)))
    again = logs.of(replace(RESPONSE, events=stored_event(0) + stored_event(1)))
    other = logs.of(replace(RESPONSE, id="resp_2", events=stored_event(0)))
    replaced = logs.of(replace(RESPONSE, events=stored_event(7), first_event=7))

    assert log is again is not other
    assert replaced is not None
    assert (replaced.events, replaced.first) == (stored_event(7), 7)
    assert logs.of(RESPONSE) is None
