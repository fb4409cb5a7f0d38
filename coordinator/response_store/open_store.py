"""Opens the configured store of responses: this process's own, in front of one that processes share."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.store import MemoryResponseStore, ResponseKey, ResponseStore
from tokenwire.coordinator.response_store.stored_response import StoredResponse
from tokenwire.errors import Unavailable

if TYPE_CHECKING:
    from tokenwire.coordinator.response_store.redis_store import RedisResponseStore

_LATE_S = 0.1
"""After which a response that was not found is looked up again: a client may be faster than the writer of another
process."""


def open_response_store(settings: ResponseStoreSettings) -> ResponseStore | None:
    """Return this process's store, with Redis behind it if configured; None if responses are not stored."""
    if not settings.enabled:
        return None
    own = MemoryResponseStore(settings.max_bytes, settings.ttl_s)
    if settings.store_url is None:
        return own
    from tokenwire.coordinator.response_store.redis_store import (
        RedisResponseStore,
    )  # without a URL, it is not even imported

    return SharedResponseStore(own, RedisResponseStore(settings))


class SharedResponseStore:
    """A shared store, and this process's own for what the shared one has lost, or does not answer."""

    def __init__(self, own: MemoryResponseStore, shared: "RedisResponseStore") -> None:
        self._own = own
        self._shared = shared

    async def find(self, keys: Sequence[ResponseKey]) -> Sequence[StoredResponse | None]:
        """Return each response. Raises Unavailable if the shared store is needed and does not answer."""
        found = await self._find(keys)
        if None in found:
            await asyncio.sleep(_LATE_S)
            found = await self._find(keys)
        return found

    def put(self, response: StoredResponse) -> None:
        """Store a response in both."""
        self._own.put(response)
        self._shared.put(response)

    async def settle(self) -> None:
        """Wait a moment until the shared store has what was stored."""
        await self._shared.settle()

    async def delete(self, key: ResponseKey) -> None:
        """Delete a response from both. Raises Unavailable if it is only deleted here."""
        await self._own.delete(key)
        await self._shared.delete(key)

    async def renew(self, keys: Collection[ResponseKey]) -> Collection[ResponseKey]:
        """Renew the leases of responses; return those that are to stop. A store that fails stops none."""
        try:
            return await self._shared.renew(keys)
        except Unavailable:
            return ()

    async def runs(self, key: ResponseKey) -> bool:
        """Return whether another process runs a response. Raises Unavailable."""
        return await self._shared.runs(key)

    async def stop(self, key: ResponseKey) -> None:
        """Ask the process that runs a response to stop it. Raises Unavailable."""
        await self._shared.stop(key)

    async def close(self) -> None:
        """Close both."""
        await self._own.close()
        await self._shared.close()

    async def _find(self, keys: Sequence[ResponseKey]) -> list[StoredResponse | None]:
        own = self._own.find_now(keys)
        try:
            shared = await self._shared.find(keys)
        except Unavailable:
            if None in own:
                raise
            return own
        found: list[StoredResponse | None] = []
        for mine, theirs in zip(own, shared, strict=True):
            if isinstance(theirs, StoredResponse):
                # What has just ended here may not be written yet.
                found.append(mine if mine is not None and mine.has_ended and not theirs.has_ended else theirs)
            else:
                found.append(mine if theirs is None else None)
        return found
