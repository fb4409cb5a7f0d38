"""Opens the configured history store: this process's own, backed by one that processes share."""

from collections.abc import Sequence

from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.store import HistoryStore, MemoryStore
from tokenwire.coordinator.history.turns import Turn


def open_store(settings: HistorySettings) -> HistoryStore:
    """Return this process's store, backed by Redis if configured."""
    own = MemoryStore(settings.max_bytes, settings.ttl_s)
    if settings.store_url is None:
        return own
    from tokenwire.coordinator.history.redis_store import RedisStore  # without a URL, Redis is not even imported

    return SharedStore(own, RedisStore(settings))


class SharedStore:
    """A store in front of a shared one, which is queried only if the end of the conversation is unknown here."""

    def __init__(self, own: HistoryStore, shared: HistoryStore) -> None:
        self._own = own
        self._shared = shared

    async def find(self, keys: Sequence[bytes], share: str = "") -> Sequence[Turn | None]:
        """Return the turn of each key; the first key is the last reply of the conversation."""
        known = await self._own.find(keys)
        if not keys or known[0] is not None:
            return known
        others = await self._shared.find(keys)
        for key, own, other in zip(keys, known, others, strict=True):
            if own is None and other is not None:
                self._own.put([key], other, share)
        return [own or other for own, other in zip(known, others, strict=True)]

    def put(self, keys: Sequence[bytes], turn: Turn, share: str = "") -> None:
        """Store a turn in both."""
        self._own.put(keys, turn, share)
        self._shared.put(keys, turn, share)

    async def close(self) -> None:
        """Close both."""
        await self._own.close()
        await self._shared.close()
