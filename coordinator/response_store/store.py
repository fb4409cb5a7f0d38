"""The interface of stores of responses, and the in-memory store, bounded in bytes and time."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokenwire.coordinator.response_store.stored_response import StoredResponse

ResponseKey = tuple[str, str]
"""A tenant, and the id of its response."""


class ResponseStore(Protocol):
    """Stores responses by tenant and id."""

    async def find(self, keys: Sequence[ResponseKey]) -> Sequence[StoredResponse | None]:
        """Return each response, None if it is not stored. Raises Unavailable if that cannot be known now."""

    def put(self, response: StoredResponse) -> None:
        """Store a response, or replace it; at once for this process, soon for others."""

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response. Raises Unavailable if it may still be found elsewhere."""

    async def renew(self, keys: Collection[ResponseKey]) -> Collection[ResponseKey]:
        """Tell others that these responses still run here; return those that are to stop."""

    async def runs(self, key: ResponseKey) -> bool:
        """Return whether another process runs a response."""

    async def stop(self, key: ResponseKey) -> None:
        """Ask the process that runs a response to stop it."""

    async def close(self) -> None:
        """Release connections and tasks."""


@dataclass(slots=True)
class _StoredEntry:
    response: StoredResponse
    expires: float


@dataclass(slots=True)
class _Share:
    """What one client has stored."""

    keys: OrderedDict[ResponseKey, None] = field(default_factory=OrderedDict)
    """In order of use."""
    size: int = 0


class MemoryResponseStore:
    """An LRU store with a TTL. If it is full, the client with most of it loses its least recently used responses."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        # In order of use, and so of expiry.
        self._entries: OrderedDict[ResponseKey, _StoredEntry] = OrderedDict()
        self._shares: dict[str, _Share] = {}
        self.size = 0
        """Bytes in use."""

    def __len__(self) -> int:
        return len(self._entries)

    async def find(self, keys: Sequence[ResponseKey]) -> Sequence[StoredResponse | None]:
        """Return each response, and mark it as used."""
        return self.find_now(keys)

    def find_now(self, keys: Sequence[ResponseKey]) -> list[StoredResponse | None]:
        """Return each response; the first one stays longest: without it, those that continue it are of no use."""
        now = self._clock()
        self._evict(now)
        for key in reversed(keys):
            entry = self._entries.get(key)
            if entry is not None:
                entry.expires = now + self._ttl_s
                self._entries.move_to_end(key)
                self._shares[entry.response.share].keys.move_to_end(key)
        return [None if (entry := self._entries.get(key)) is None else entry.response for key in keys]

    def put(self, response: StoredResponse) -> None:
        """Store a response."""
        now, key = self._clock(), (response.tenant, response.id)
        self._drop(key)
        self._entries[key] = _StoredEntry(response, now + self._ttl_s)
        share = self._shares.setdefault(response.share, _Share())
        share.keys[key] = None
        share.size += response.size_bytes
        self.size += response.size_bytes
        self._evict(now)

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response."""
        self._drop(key)

    async def renew(self, keys: Collection[ResponseKey]) -> Collection[ResponseKey]:
        """Return none: there are no others."""
        return ()

    async def runs(self, key: ResponseKey) -> bool:
        """Return false: there are no others."""
        return False

    async def stop(self, key: ResponseKey) -> None:
        """Do nothing: there are no others."""

    async def close(self) -> None:
        """Do nothing."""

    def _evict(self, now: float) -> None:
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.expires > now:
                break
            self._drop(key)
        while self.size > self._max_bytes:
            largest = max(self._shares.values(), key=lambda share: share.size)
            self._drop(next(iter(largest.keys)))

    def _drop(self, key: ResponseKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        name, size = entry.response.share, entry.response.size_bytes
        share = self._shares[name]
        del share.keys[key]
        share.size -= size
        self.size -= size
        if not share.keys:
            del self._shares[name]
