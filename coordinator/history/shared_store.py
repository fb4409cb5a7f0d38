"""A store in this process in front of one that other processes share."""

from collections.abc import Sequence

from tokenwire.coordinator.history.store import HistoryStore
from tokenwire.coordinator.history.turns import Turn


class SharedStore:
    """Asks the others only where this process does not know the end of the conversation itself."""

    def __init__(self, own: HistoryStore, shared: HistoryStore) -> None:
        self._own = own
        self._shared = shared

    async def find(self, keys: Sequence[bytes]) -> Sequence[Turn | None]:
        """Return the turn of each key; the last reply of a conversation comes first."""
        known = await self._own.find(keys)
        if not keys or known[0] is not None:
            return known
        others = await self._shared.find(keys)
        for key, own, other in zip(keys, known, others, strict=True):
            if own is None and other is not None:
                self._own.put([key], other)
        return [own or other for own, other in zip(known, others, strict=True)]

    def put(self, keys: Sequence[bytes], turn: Turn) -> None:
        """Keep a turn here and for the others."""
        self._own.put(keys, turn)
        self._shared.put(keys, turn)

    async def close(self) -> None:
        """Leave both."""
        await self._own.close()
        await self._shared.close()
