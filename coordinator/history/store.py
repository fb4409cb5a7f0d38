"""The interface of history stores, and the in-memory store, bounded in bytes and time."""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenwire.coordinator.history.turns import Turn
from tokenwire.process.fair_memory import LargestShare

# Measured sizes of a key and of a turn without its ids.
_KEY_BYTES = 320
_TURN_BYTES = 320


class HistoryStore(Protocol):
    """Stores turns by the keys of their conversations."""

    async def find(self, keys: Sequence[bytes], share: str = "") -> Sequence[Turn | None]:
        """Return the turn of each key, None if there is none. Raises nothing: a failure is a miss.

        `share`: whose memory takes what is found elsewhere.
        """

    def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
        """Store a turn under keys, replacing earlier ones; at once for this process, soon for others.

        `share`: whose memory it takes.
        """

    async def close(self) -> None:
        """Release connections and tasks."""


@dataclass(slots=True)
class _Entry:
    turn: Turn
    expires: float
    share: str


@dataclass(slots=True)
class _Held:
    """A turn that is kept."""

    share: str
    count: int
    """Keys and turns that refer to it."""


class MemoryStore:
    """A store with a TTL, in which who has most loses first what was used least recently.

    A turn that others continue stays as long as they do.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        # In order of use, and so of expiry.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._keys: defaultdict[str, OrderedDict[bytes, None]] = defaultdict(OrderedDict)
        """Those of each share, in order of use."""
        self._sizes = LargestShare()
        self._turns: dict[Turn, _Held] = {}
        self.size = 0
        """Bytes in use."""

    def __len__(self) -> int:
        return len(self._entries)

    async def find(self, keys: Sequence[bytes], share: str = "") -> Sequence[Turn | None]:
        """Return the turn of each key, and mark it as used."""
        now = self._clock()
        self._evict(now)
        found = [self._entries.get(key) for key in keys]
        for key, entry in zip(keys, found, strict=True):
            if entry is not None:
                entry.expires = now + self._ttl_s
                self._entries.move_to_end(key)
                self._keys[entry.share].move_to_end(key)
        return [None if entry is None else entry.turn for entry in found]

    def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
        """Store a turn under keys."""
        expires = self._clock() + self._ttl_s
        for key in keys:
            held = self._hold(turn, share)
            self._drop(key)
            self._entries[key] = _Entry(turn, expires, share)
            self._keys[share][key] = None
            self._grow(share, _KEY_BYTES + held)
        self._evict(expires - self._ttl_s)

    async def close(self) -> None:
        """Do nothing."""

    def _evict(self, now: float) -> None:
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.expires > now:
                if self.size <= self._max_bytes:
                    return
                key = next(iter(self._keys.get(self._sizes.find(), ())), key)
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        keys = self._keys[entry.share]
        del keys[key]
        if not keys:
            del self._keys[entry.share]
        self._grow(entry.share, -_KEY_BYTES)
        self._release(entry.turn)

    def _hold(self, turn: Turn, share: str) -> int:
        """Keep a turn once more; return how many bytes that takes."""
        size = 0
        for link in turn.chain():
            held = self._turns.get(link)
            if held is not None:
                held.count += 1
                break
            self._turns[link] = _Held(share, 1)
            size += _size(link)
        return size

    def _release(self, turn: Turn) -> None:
        for link in turn.chain():
            held = self._turns[link]
            held.count -= 1
            if held.count:
                return
            del self._turns[link]
            self._grow(held.share, -_size(link))

    def _grow(self, share: str, more: int) -> None:
        self.size += more
        self._sizes.grow(share, more)


def _size(turn: Turn) -> int:
    return _TURN_BYTES + len(turn.token_ids) * turn.token_ids.itemsize
