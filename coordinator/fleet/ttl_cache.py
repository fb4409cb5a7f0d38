"""An LRU cache with a time to live: the worker that a session or an adapter used last."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable


class TTLCache:
    """Maps keys to workers, bounded in size; entries expire."""

    def __init__(self, capacity: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[str, float]] = OrderedDict()
        """Least recently used first."""

    def __len__(self) -> int:
        """The number of entries, expired ones included."""
        return len(self._entries)

    def get(self, key: Hashable) -> str | None:
        """Return the worker of a key; None if absent or expired."""
        worker, used_at = self._entries.get(key, (None, 0.0))
        return worker if self._clock() - used_at <= self._ttl_s else None

    def put(self, key: Hashable, worker: str) -> None:
        """Store the worker of a key."""
        self._entries[key] = worker, self._clock()
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
