"""Where something was used last: bounded, and forgotten after a while."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable


class Recent:
    """Remembers one worker for each key."""

    def __init__(self, capacity: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[str, float]] = OrderedDict()
        """The longest unused first."""

    def __len__(self) -> int:
        """Keys that are remembered, expired ones included."""
        return len(self._entries)

    def get(self, key: Hashable) -> str | None:
        """Return the worker of last time."""
        worker, used_at = self._entries.get(key, (None, 0.0))
        return worker if self._clock() - used_at <= self._ttl_s else None

    def put(self, key: Hashable, worker: str) -> None:
        """Remember a use."""
        self._entries[key] = worker, self._clock()
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
