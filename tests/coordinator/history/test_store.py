"""The in-memory store is bounded in bytes and time for any conversations."""

import tracemalloc
from array import array

from tests.clock import Clock
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.turns import Turn


def turn(count: int = 10, parent: Turn | None = None) -> Turn:
    """Return a turn with this number of its own ids."""
    return Turn(array("I", range(count)), parent)


async def test_turns_are_found_by_each_of_their_keys() -> None:
    """A turn may have several keys; other keys are misses."""
    store, kept = MemoryStore(1 << 20, 60), turn()
    store.put([b"a", b"b"], kept)

    assert await store.find([b"b", b"c", b"a"]) == [kept, None, kept]


async def test_a_key_has_the_last_turn_that_was_put_under_it() -> None:
    """A repeated conversation replaces the earlier one and frees its memory."""
    store = MemoryStore(1 << 20, 60)
    store.put([b"a"], turn(1000))
    size, again = store.size, turn(1000)
    store.put([b"a"], again)

    assert await store.find([b"a"]) == [again]
    assert store.size == size


async def test_the_least_recently_used_turn_is_evicted_first() -> None:
    """A find counts as a use."""
    store = MemoryStore(10_000, 60)
    for name in (b"a", b"b"):
        store.put([name], turn(1000))
    await store.find([b"a"])
    store.put([b"c"], turn(1000))

    a, b, c = await store.find([b"a", b"b", b"c"])

    assert a is not None
    assert b is None
    assert c is not None


async def test_a_store_is_filled_to_its_last_byte() -> None:
    """Nothing is evicted for a turn that just fits."""
    probe = MemoryStore(1 << 20, 60)
    probe.put([b"a"], turn())
    store = MemoryStore(probe.size, 60)
    store.put([b"a"], turn())

    assert await store.find([b"a"]) != [None]


async def test_who_has_most_loses_first() -> None:
    """However recently that was used: a tenant with many conversations costs another none of its few."""
    store = MemoryStore(20_000, 60)
    store.put([b"small"], turn(), "small")
    for number in range(100):
        store.put([number.to_bytes(8, "big")], turn(100), "large")

    assert None not in await store.find([b"small", (99).to_bytes(8, "big")])
    assert await store.find([bytes(8)]) == [None]
    assert store.size <= 20_000


async def test_turns_expire_after_their_ttl() -> None:
    """Each use restarts the TTL."""
    clock = Clock(0.0)
    store = MemoryStore(1 << 20, 60, clock)
    for name in (b"a", b"b"):
        store.put([name], turn())
    clock.now = 40
    await store.find([b"a"])
    clock.now = 80

    a, b = await store.find([b"a", b"b"])

    assert a is not None
    assert b is None
    clock.now = 200
    assert await store.find([b"a"]) == [None]
    assert store.size == 0


async def test_a_turn_keeps_the_turns_that_it_continues() -> None:
    """Branches share earlier turns, which are counted once and stay as long as one of the branches does."""
    store = MemoryStore(100_000, 60)
    root = turn(20_000)
    store.put([b"root"], root)
    size = store.size
    store.put([b"one"], turn(10, root))
    store.put([b"other"], turn(10, root))
    assert store.size - size < 2_000

    store.put([b"more"], turn(4_400))  # too much: the root's own key is evicted, its ids are not
    found, one = await store.find([b"root", b"one"])
    assert found is None
    assert one is not None
    assert len(one.all_ids()) == 20_010

    store.put([b"most"], turn(20_000))  # now its branches are evicted, and it with them
    assert await store.find([b"one", b"other"]) == [None, None]
    assert store.size < 100_000


def test_many_conversations_stay_within_the_bound() -> None:
    """The counted size matches Python's memory, within the growth of a dictionary."""
    bound = 4_000_000
    store = MemoryStore(bound, 3600)
    tracemalloc.start()
    for number in range(6_000):
        prompt = turn(50)
        store.put([number.to_bytes(16, "big")], turn(100, prompt))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert store.size <= bound
    assert 1_000 < len(store) < 6_000
    assert taken < 1.25 * bound
