"""Memory that clients share, bounded in bytes and time: who has about most loses what was used least recently."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key")
Kept = TypeVar("Kept")

_COMPARED = 16
"""Shares of about the same size."""


class LargestShare:
    """Finds in a constant time who has most, or about most if they are many.

    Shares are apart by powers of two of their sizes, and some of those in the highest one are compared.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._by_power: dict[int, OrderedDict[str, None]] = {}
        """Not dicts, whose first key is found in a time that grows with how many were removed before it."""

    def grow(self, share: str, more: int) -> None:
        """Note that a share has so much more, or less; without a size there is none."""
        before = self._sizes.pop(share, 0)
        size = before + more
        known, power = before.bit_length(), size.bit_length()
        if size:
            self._sizes[share] = size
        if power == known:
            return
        if known:
            shares = self._by_power[known]
            del shares[share]
            if not shares:
                del self._by_power[known]
        if power:
            self._by_power.setdefault(power, OrderedDict())[share] = None

    def size_of(self, share: str) -> int:
        """Return the size of a share."""
        return self._sizes.get(share, 0)

    def find(self) -> str:
        """Return the share of which no other one has twice the size. Raises ValueError if there is none."""
        highest = self._by_power[max(self._by_power)]
        return max(islice(highest, _COMPARED), key=self._sizes.__getitem__)


@dataclass(slots=True)
class _KeptEntry(Generic[Kept]):
    value: Kept
    share: str
    size: int = 0
    expires: float = 0.0


class FairMemory(Generic[Key, Kept]):
    """Values by key, each kept for a time after its last use, unless there is no room for it."""

    def __init__(
        self,
        max_bytes: int,
        ttl_s: float,
        clock: Callable[[], float] = time.monotonic,
        on_dropped: Callable[[Key], None] | None = None,
    ) -> None:
        """`on_dropped` is called with each key that is dropped, for whatever reason."""
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._on_dropped = on_dropped
        self._entries: OrderedDict[Key, _KeptEntry[Kept]] = OrderedDict()
        """In order of use, and so of expiry."""
        self._shares: dict[str, OrderedDict[Key, None]] = {}
        """What each client has, in order of use."""
        self._sizes = LargestShare()
        self.size = 0
        """Bytes in use."""
        self.evicted = 0
        """How many values were dropped because there was no room for them."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key) -> Kept | None:
        """Return a value, which does not count as a use."""
        self.expire()
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def use(self, key: Key) -> Kept | None:
        """Return a value, and keep it for longer."""
        self.expire()
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._touch(key, entry)
        return entry.value

    def put(self, key: Key, value: Kept, share: str, size: int) -> None:
        """Keep a value, in place of an earlier one; `share`: whose part of the memory it takes, `size`: in bytes."""
        self._take_out(key)
        self._entries[key] = _KeptEntry(value, share)
        self._shares.setdefault(share, OrderedDict())
        self.grow(key, size)

    def grow(self, key: Key, more: int) -> None:
        """Count so many more bytes for a value that is there, and keep it for longer, if there is room for it."""
        entry = self._entries[key]
        self._resize(entry, more)
        self._touch(key, entry)
        self.expire()
        while self.size > self._max_bytes:
            self.evict()

    def evict(self) -> Kept:
        """Drop what the client with most has used least recently, and return it."""
        key = next(iter(self._shares[self._sizes.find()]))
        value = self._entries[key].value
        self.evicted += 1
        self.drop(key)
        return value

    def size_of(self, share: str) -> int:
        """Return the bytes of one client's values."""
        return self._sizes.size_of(share)

    def drop(self, key: Key) -> bool:
        """Drop a value; return whether there was one."""
        if not self._take_out(key):
            return False
        if self._on_dropped is not None:
            self._on_dropped(key)
        return True

    def expire(self) -> None:
        """Drop what has not been used for the TTL."""
        now = self._clock()
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.expires > now:
                return
            self.drop(key)

    def _touch(self, key: Key, entry: _KeptEntry[Kept]) -> None:
        entry.expires = self._clock() + self._ttl_s
        self._entries.move_to_end(key)
        keys = self._shares[entry.share]
        keys[key] = None
        keys.move_to_end(key)

    def _resize(self, entry: _KeptEntry[Kept], more: int) -> None:
        entry.size += more
        self._sizes.grow(entry.share, more)
        self.size += more

    def _take_out(self, key: Key) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._resize(entry, -entry.size)
        keys = self._shares[entry.share]
        del keys[key]
        if not keys:
            del self._shares[entry.share]
        return True
