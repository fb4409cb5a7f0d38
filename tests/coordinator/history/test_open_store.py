"""The configured history store: a process's own, in front of one that processes share."""

from array import array
from typing import cast

from tokenwire.coordinator.history.open_store import SharedStore, open_store
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.history.store import HistoryStore, MemoryStore
from tokenwire.coordinator.history.turns import Turn

ONE, OTHER = Turn(array("I", [1])), Turn(array("I", [2]))


class CountedStore(MemoryStore):
    """Counts queries and records its end."""

    def __init__(self) -> None:
        super().__init__(1 << 20, 60.0)
        self.queries = 0
        self.closed = False

    async def find(self, keys: list[bytes]) -> list[Turn | None]:  # type: ignore[override]
        """Count."""
        self.queries += 1
        return list(await super().find(keys))

    async def close(self) -> None:
        """Record."""
        self.closed = True


def opened() -> tuple[SharedStore, CountedStore, CountedStore]:
    """Return a shared store, and the two that it consists of."""
    own, shared = CountedStore(), CountedStore()
    return SharedStore(cast("HistoryStore", own), cast("HistoryStore", shared)), own, shared


def test_without_a_url_turns_stay_in_the_process() -> None:
    """Redis is not even imported."""
    assert isinstance(open_store(HistorySettings()), MemoryStore)


async def test_the_shared_store_is_queried_only_for_unknown_conversations() -> None:
    """Those whose last reply was not generated here; what it has is then known here too."""
    store, own, shared = opened()
    own.put([b"last"], ONE)
    shared.put([b"elsewhere"], OTHER)

    assert await store.find([b"last", b"none"]) == [ONE, None]
    assert shared.queries == 0
    assert await store.find([b"elsewhere", b"last"]) == [OTHER, ONE]
    assert await store.find([b"elsewhere"]) == [OTHER]
    assert shared.queries == 1


async def test_turns_are_put_into_both() -> None:
    """And both are closed."""
    store, own, shared = opened()

    store.put([b"key"], ONE)
    await store.close()

    assert await own.find([b"key"]) == await shared.find([b"key"]) == [ONE]
    assert (own.closed, shared.closed) == (True, True)
