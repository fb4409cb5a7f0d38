"""The interface of history stores, and the in-memory store, bounded in bytes and time."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tokenwire.coordinator.history.turns import Turn

# Measured sizes of a key and of a turn without its ids.
_KEY_BYTES = 320
_TURN_BYTES = 320


class HistoryStore(Protocol):
    """Stores turns by the keys of their conversations."""

    async def find(self, keys: Sequence[bytes]) -> Sequence[Turn | None]:
        """Return the turn of each key, None if there is none. Raises nothing: a failure is a miss."""

    def put(self, keys: Sequence[bytes], turn: Turn) -> None:
        """Store a turn under keys, replacing earlier ones; at once for this process, soon for others."""

    async def close(self) -> None:
        """Release connections and tasks."""


@dataclass(slots=True)
class _Entry:
    turn: Turn
    expires: float


class MemoryStore:
    """An LRU store with a TTL; a turn that others continue stays as long as they do."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        # In order of use, and so of expiry.
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._holders: dict[Turn, int] = {}
        """Number of keys and turns that refer to each turn."""
        self.size = 0
        """Bytes in use."""

    def __len__(self) -> int:
        return len(self._entries)

    async def find(self, keys: Sequence[bytes]) -> Sequence[Turn | None]:
        """Return the turn of each key, and mark it as used."""
        now = self._clock()
        self._evict(now)
        found = [self._entries.get(key) for key in keys]
        for key, entry in zip(keys, found, strict=True):
            if entry is not None:
                entry.expires = now + self._ttl_s
                self._entries.move_to_end(key)
        return [None if entry is None else entry.turn for entry in found]

    def put(self, keys: Sequence[bytes], turn: Turn) -> None:
        """Store a turn under keys."""
        now = self._clock()
        for key in keys:
            self._hold(turn)
            self._drop(key)
            self._entries[key] = _Entry(turn, now + self._ttl_s)
            self.size += _KEY_BYTES
        self._evict(now)

    async def close(self) -> None:
        """Do nothing."""

    def _evict(self, now: float) -> None:
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if self.size <= self._max_bytes and entry.expires > now:
                return
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= _KEY_BYTES
            self._release(entry.turn)

    def _hold(self, turn: Turn) -> None:
        for link in turn.chain():
            held = self._holders.get(link, 0)
            self._holders[link] = held + 1
            if held:
                return
            self.size += _size(link)

    def _release(self, turn: Turn) -> None:
        for link in turn.chain():
            self._holders[link] -= 1
            if self._holders[link]:
                return
            del self._holders[link]
            self.size -= _size(link)


def _size(turn: Turn) -> int:
    return _TURN_BYTES + len(turn.token_ids) * turn.token_ids.itemsize
