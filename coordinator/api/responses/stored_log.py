"""The events of a stream that has ended: read from the bytes in which they are stored, by any number of clients."""

import asyncio
from collections.abc import AsyncIterator
from functools import cached_property
from weakref import WeakValueDictionary

from tokenwire.coordinator.api.as_read import byte_parts
from tokenwire.coordinator.api.responses.event_log import END, check_kept
from tokenwire.coordinator.response_store.store import ResponseKey
from tokenwire.coordinator.response_store.stored_response import StoredResponse

_EVENTS_AT_ONCE = 4096


class StoredLog:
    """All of its events are kept as one value, of which readers take a part at a time."""

    def __init__(self, events: bytes, first: int) -> None:
        """`first`: the number of the first event."""
        self.events = events
        self.first = first

    def check(self, after: int) -> None:
        """Check that the events after a number are kept. Raises InvalidRequest."""
        check_kept(self.first, after, self._end)

    @cached_property
    def _end(self) -> int:
        """The number behind that of the last event; counting them takes 2 ms for a megabyte."""
        return self.first + self.events.count(END)

    async def read(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after a number, in parts that do not end where events do."""
        for part in byte_parts(self.events, await self._place_of(after + 1)):
            yield part

    async def _place_of(self, number: int) -> int:
        """Return where an event begins, with turns for others; behind the last one if there is none."""
        place = 0
        for count in range(number - self.first):
            found = self.events.find(END, place)
            if found < 0:
                return len(self.events)
            place = found + len(END)
            if count % _EVENTS_AT_ONCE == _EVENTS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return place


class OpenLogs:
    """The logs that are being read: one of each response, also where a store returns a copy to each of its readers."""

    def __init__(self) -> None:
        self._logs: WeakValueDictionary[ResponseKey, StoredLog] = WeakValueDictionary()

    def of(self, stored: StoredResponse) -> StoredLog | None:
        """Return the log of a response, None if it has no events."""
        if stored.events is None:
            return None
        key = stored.tenant, stored.id
        log = self._logs.get(key)
        if log is None or log.events != stored.events:
            log = self._logs[key] = StoredLog(stored.events, stored.first_event)
        return log
