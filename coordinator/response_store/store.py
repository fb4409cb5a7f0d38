"""The interface of stores of responses, and the in-memory store, bounded in bytes and time."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.process.fair_memory import FairMemory

ResponseKey = tuple[str, str]
"""A tenant, and the id of its response."""


class ResponseStore(Protocol):
    """Stores responses by tenant and id."""

    async def find(self, keys: Sequence[ResponseKey]) -> Sequence[StoredResponse | None]:
        """Return each response, None if it is not stored. Raises Unavailable if that cannot be known now."""

    def put(self, response: StoredResponse) -> None:
        """Store a response, or replace it; at once for this process, soon for others."""

    async def settle(self) -> None:
        """Wait until other processes find what was stored, or for half a second."""

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


class MemoryResponseStore:
    """An LRU store with a TTL. If it is full, the client with most of it loses its least recently used responses."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = FairMemory[ResponseKey, StoredResponse](max_bytes, ttl_s, clock)

    def __len__(self) -> int:
        return len(self._memory)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._memory.size

    async def find(self, keys: Sequence[ResponseKey]) -> Sequence[StoredResponse | None]:
        """Return each response, and mark it as used."""
        return self.find_now(keys)

    def find_now(self, keys: Sequence[ResponseKey]) -> list[StoredResponse | None]:
        """Return each response; the first one stays longest: without it, those that continue it are of no use."""
        found = {key: self._memory.use(key) for key in reversed(keys)}
        return [found[key] for key in keys]

    def put(self, response: StoredResponse) -> None:
        """Store a response."""
        self._memory.put((response.tenant, response.id), response, response.share, response.size_bytes)

    async def settle(self) -> None:
        """Do nothing: there are no others."""

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response."""
        self._memory.drop(key)

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
