"""The in-memory store: bounded in bytes and time, and shared fairly."""

from tests.clock import Clock
from tests.coordinator.response_store.responses import RESPONSE, response_of
from tokenwire.coordinator.response_store.store import MemoryResponseStore

SIZE = response_of("resp_1", size=1000).size_bytes


async def found_responses(store: MemoryResponseStore, *ids: str, tenant: str = "acme") -> list[bool]:
    """Return which of a tenant's responses are stored."""
    return [each is not None for each in await store.find([(tenant, id_) for id_ in ids])]


async def test_a_tenant_finds_only_its_own_responses(time: Clock) -> None:
    """Another's with the same id is another one."""
    store = MemoryResponseStore(10 * SIZE, 60.0, time)
    store.put(RESPONSE)

    assert await store.find([("acme", "resp_1"), ("other", "resp_1"), ("acme", "resp_2")]) == [RESPONSE, None, None]


async def test_a_full_store_drops_what_was_not_used_for_longest(time: Clock) -> None:
    """Of the client that has most, so that one cannot drop the responses of others."""
    store = MemoryResponseStore(4 * SIZE, 60.0, time)
    store.put(response_of("resp_0", "other", 1000))
    for number in range(5):
        store.put(response_of(f"resp_{number}", size=1000))
        await store.find([("acme", "resp_0")])

    assert await found_responses(store, "resp_0", "resp_1", "resp_2", "resp_3", "resp_4") == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert await found_responses(store, "resp_0", tenant="other") == [True]
    assert store.size == 4 * SIZE


async def test_the_end_of_a_conversation_is_dropped_before_its_beginning(time: Clock) -> None:
    """Without its beginning nothing of it can be continued."""
    store = MemoryResponseStore(3 * SIZE, 60.0, time)
    for id_ in ("resp_0", "resp_1", "resp_2"):
        store.put(response_of(id_, size=1000))
    await store.find([("acme", id_) for id_ in ("resp_0", "resp_1", "resp_2")])
    store.put(response_of("resp_3", size=1000))

    assert await found_responses(store, "resp_0", "resp_1", "resp_2", "resp_3") == [True, True, False, True]


async def test_a_response_is_kept_for_some_time_after_its_last_use(time: Clock) -> None:
    """Then its memory is free."""
    store = MemoryResponseStore(10 * SIZE, 60.0, time)
    store.put(response_of("resp_0"))
    time.now += 59
    assert await found_responses(store, "resp_0") == [True]
    time.now += 59
    assert await found_responses(store, "resp_0") == [True]

    time.now += 61
    assert await found_responses(store, "resp_0") == [False]
    assert (store.size, len(store)) == (0, 0)


async def test_what_is_larger_than_the_store_is_not_kept(time: Clock) -> None:
    """And a response that is replaced or deleted takes nothing."""
    store = MemoryResponseStore(2 * SIZE, 60.0, time)
    store.put(response_of("resp_0", size=4000))
    assert store.size == 0

    store.put(response_of("resp_0", size=10))
    store.put(response_of("resp_0", size=1000))
    assert store.size == SIZE
    await store.delete(("acme", "resp_0"))
    await store.delete(("acme", "resp_0"))
    assert store.size == 0
