"""Sessions in a real Redis are shared by processes, expire, and never block requests for long."""

import asyncio

import pytest

from tests.ports import free_port
from tests.redis_server import PASSWORD
from tokenwire.coordinator.shared_redis import PAUSE_S, open_redis
from tokenwire.coordinator.trajectories.redis_store import RedisTrajectoryStore
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.coordinator.trajectories.store import SessionKey
from tokenwire.errors import Unavailable

pytestmark = pytest.mark.npm


def redis_store_of(url: str, dropped: list[SessionKey] | None = None) -> RedisTrajectoryStore:
    """Return a store for this Redis."""
    settings = TrajectorySettings(enabled=True, store=url, store_password=PASSWORD, ttl_s=60.0)
    return RedisTrajectoryStore(settings, ([] if dropped is None else dropped).append)


async def test_another_process_finds_a_session(redis_url: str) -> None:
    """And appends to it; other tenants do not find it."""
    one, two = redis_store_of(redis_url), redis_store_of(redis_url)
    key = ("acme", "shared")
    one.append(key, "", b"1")
    await one.flush()
    two.append(key, "", b"2")
    await two.flush()

    assert await one.read(key) == [b"1", b"2"]
    assert await one.read(("other", "shared")) == []
    assert await two.size_of(key) > 2
    assert await two.size_of(("other", "shared")) == 0
    assert "shared" in [session.id for session in await two.sessions("acme")]
    assert await two.sessions("other") == []
    await one.close()
    await two.close()


async def test_a_deleted_or_expired_session_is_gone(redis_url: str) -> None:
    """From the list too."""
    store, client = redis_store_of(redis_url), open_redis(redis_url, PASSWORD)
    for name in ("deleted", "expired"):
        store.append(("gone", name), "", name.encode())
    await store.flush()
    assert await store.delete(("gone", "deleted"))
    assert not await store.delete(("gone", "deleted"))
    async for name in client.scan_iter(b"tokenwire:trajectories:1:*"):
        if [each[16:] for each in await client.lrange(name, 0, -1)][1:] == [b"expired"]:
            assert 0 < await client.ttl(name) <= 60
            await client.delete(name)

    assert await store.sessions("gone") == []
    assert await store.read(("gone", "expired")) == []
    await store.close()
    await client.aclose()


async def test_what_does_not_fit_into_its_session_is_dropped(redis_url: str) -> None:
    """Whichever process has stored what is there, and however large its first event is; rewards still fit."""
    dropped: list[SessionKey] = []
    settings = TrajectorySettings(enabled=True, store=redis_url, store_password=PASSWORD, max_session_bytes=2**20)
    store, other, key = RedisTrajectoryStore(settings, dropped.append), redis_store_of(redis_url), ("acme", "full")
    other.append(key, "", b"x" * 300_000)
    await other.flush()
    small = [b"%05d" % number + b"s" * 10_000 for number in range(50)]
    for event in (*small, b"y" * 500_000, b"z"):
        store.append(key, "", event)
        await store.flush()

    await store.put(key, "", b"reward" * 80_000)

    assert await store.read(key) == [b"x" * 300_000, *small, b"z", b"reward" * 80_000]
    assert 2**20 < await store.size_of(key) < store.most_session_bytes == 2**20 + RESERVE_BYTES
    assert (dropped, store.dropped.events) == ([key], 1)
    await store.delete(key)
    await store.close()
    await other.close()


async def test_the_list_of_a_tenant_is_bounded(redis_url: str) -> None:
    """It has the newest sessions, whether or not somebody reads it; the others are still there."""
    settings = TrajectorySettings(enabled=True, store=redis_url, store_password=PASSWORD, ttl_s=60.0)
    store = RedisTrajectoryStore(settings, list[SessionKey]().append, most_listed=2)
    for name in ("a", "b", "c"):
        store.append(("many", name), "", b"1")
        await store.flush()

    newest, before = await store.sessions("many")
    assert [newest.id, before.id] == ["c", "b"]
    assert await store.sessions("many", 1) == await store.sessions("many", since=newest.created_at) == [newest]
    assert await store.read(("many", "a")) == [b"1"]
    await store.close()


@pytest.mark.parametrize("begun_anew", [False, True])
async def test_a_session_that_another_process_dropped_is_begun_anew(redis_url: str, begun_anew: bool) -> None:
    """Whatever is stored first says so, and only that, also if the other one has begun it anew."""
    dropped: list[SessionKey] = []
    one, other = redis_store_of(redis_url, dropped), redis_store_of(redis_url)
    key = ("acme", f"anew {begun_anew}")
    one.append(key, "", b"1")
    await one.flush()
    one.append(key, "", b"2")
    await one.flush()
    assert await other.delete(key)
    for event in (b"a", b"b", b"c")[: 3 if begun_anew else 0]:
        other.append(key, "", event)
    await other.flush()
    assert dropped == []
    one.append(key, "", b"3")
    await one.flush()
    one.append(key, "", b"4")
    await one.flush()

    assert dropped == [key]
    await one.close()
    await other.close()


async def test_what_is_of_another_session_is_not_returned(redis_url: str) -> None:
    """Whatever Redis holds under its name."""
    store, client = redis_store_of(redis_url), open_redis(redis_url, PASSWORD)
    store.append(("acme", "mixed"), "", b"mine")
    await store.flush()
    async for name in client.scan_iter(b"tokenwire:trajectories:1:*"):
        await client.rpush(name, b"another's")

    assert await store.read(("acme", "mixed")) == [b"mine"]
    await store.close()
    await client.aclose()


async def test_a_redis_without_room_says_so(redis_url: str) -> None:
    """To whoever waits for what it stores; what it has is kept."""
    store, client, key = redis_store_of(redis_url), open_redis(redis_url, PASSWORD), ("acme", "no room")
    await store.put(key, "", b"1")
    await client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable, match="The store of trajectories has no room"):
            await store.put(key, "", b"2")
    finally:
        await client.config_set("maxmemory", 0)
    await asyncio.sleep(PAUSE_S)

    assert await store.read(key) == [b"1"]
    await store.close()
    await client.aclose()


async def test_without_redis_events_are_dropped() -> None:
    """And readers are told to try again."""
    dropped: list[SessionKey] = []
    store = redis_store_of(f"redis://127.0.0.1:{free_port()}", dropped)
    store.append(("acme", "a"), "", b"1")
    with pytest.raises(Unavailable, match="does not answer"):
        await store.flush()

    assert dropped == [("acme", "a")]
    with pytest.raises(Unavailable, match="does not answer"):
        await store.put(("acme", "a"), "", b"2")
    with pytest.raises(Unavailable, match="does not answer"):
        await store.read(("acme", "a"))
    await store.close()
