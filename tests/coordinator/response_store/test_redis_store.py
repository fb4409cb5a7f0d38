"""Responses in a real Redis are shared by processes, expire, stay deleted, and never block requests for long."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from tests.coordinator.response_store.responses import RESPONSE, response_of
from tests.ports import free_port
from tests.redis_server import PASSWORD, redis_server
from tokenwire.coordinator.response_store.redis_store import Deleted, RedisResponseStore
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.response_store.stored_response import pack
from tokenwire.coordinator.shared_redis import open_redis
from tokenwire.errors import Unavailable

pytestmark = pytest.mark.npm
KEY = ("acme", "resp_1")


def response_store_of(redis_url: str, ttl_s: float = 60.0) -> RedisResponseStore:
    """Return a store for this Redis."""
    return RedisResponseStore(
        ResponseStoreSettings(enabled=True, store_url=redis_url, store_password=PASSWORD, ttl_s=ttl_s)
    )


async def until_written(store: RedisResponseStore) -> None:
    """Wait through a pause after an error."""
    for _ in range(3):
        await store.flush()


async def test_another_process_finds_a_response(redis_url: str) -> None:
    """Only with its tenant."""
    one, other = response_store_of(redis_url), response_store_of(redis_url)
    one.put(RESPONSE)
    await one.close()

    assert await other.find([KEY, ("other", "resp_1"), ("acme", "resp_2")]) == [RESPONSE, None, None]
    await other.close()


async def test_what_is_settled_is_found_by_others_at_once(redis_url: str) -> None:
    """Also its lease. Where Redis is away, nobody waits for it again and again."""
    one, other = response_store_of(redis_url), response_store_of(redis_url)
    for number in range(20):
        one.put(response_of(f"resp_settled_{number}", status="in_progress"))
        await one.settle()
        assert await other.find([("acme", f"resp_settled_{number}")]) != [None]
        assert await other.runs(("acme", f"resp_settled_{number}"))
    away = response_store_of(f"redis://127.0.0.1:{free_port()}")
    away.put(RESPONSE)
    await away.settle()
    await asyncio.wait_for(away.settle(), 0.1)
    assert not away._queue.empty() or away._queued_bytes
    await asyncio.gather(one.close(), other.close(), away.close())


async def test_a_deleted_response_stays_deleted(redis_url: str) -> None:
    """Also if the process that ran it stores its end later."""
    one, other = response_store_of(redis_url), response_store_of(redis_url)
    key = ("acme", "resp_deleted")
    one.put(response_of("resp_deleted"))
    await one.delete(key)
    other.put(response_of("resp_deleted"))
    await other.close()

    assert await one.find([key]) == [Deleted]
    await one.close()


async def test_what_is_another_response_is_not_returned(redis_url: str) -> None:
    """Whatever Redis answers: it may hold what another tenant must not see."""
    store = response_store_of(redis_url)
    store.put(response_of("resp_mine"))
    await store.flush()
    client = open_redis(redis_url, PASSWORD)
    packed = pack(response_of("resp_mine"))
    (name,) = [key async for key in client.scan_iter() if await client.get(key) == packed]
    await client.set(name, pack(response_of("resp_mine", share="other")))

    assert await store.find([("acme", "resp_mine")]) == [None]
    await asyncio.gather(store.close(), client.aclose())


async def test_a_process_learns_what_it_is_to_stop(redis_url: str) -> None:
    """What another one cancelled, or deleted; others see that it runs."""
    one, other = response_store_of(redis_url), response_store_of(redis_url)
    keys = [("acme", name) for name in ("resp_runs", "resp_stops", "resp_gone")]
    for _, id_ in keys:
        one.put(response_of(id_, status="in_progress"))
    await one.flush()
    assert await one.renew(keys) == []
    await other.stop(keys[1])
    await other.delete(keys[2])

    assert await one.renew(keys) == keys[1:]
    one.put(response_of("resp_stops", status="in_progress"))  # another one, with a client's own id
    await one.flush()
    assert await one.renew([keys[1]]) == []
    assert await other.runs(keys[0])
    assert not await other.runs(("acme", "resp_unknown"))
    await asyncio.gather(one.close(), other.close())


async def test_a_redis_that_fails_is_unavailable_at_once() -> None:
    """Nothing waits for it."""
    store = response_store_of(f"redis://127.0.0.1:{free_port()}")
    store.put(RESPONSE)
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(Unavailable, match="store of responses"):
            await store.find([KEY])
    with pytest.raises(Unavailable):
        await store.delete(KEY)

    assert time.monotonic() - began < 2
    await store.close()


async def test_what_was_stored_while_redis_was_away_is_written_when_it_is_back() -> None:
    """Others would take a reply for lost that its own process has. What Redis refuses does not hold up the rest."""
    port = free_port()
    store = response_store_of(f"redis://127.0.0.1:{port}")
    store.put(RESPONSE)
    with pytest.raises(Unavailable):
        await store.find([KEY])
    with redis_server(port, PASSWORD):
        await until_written(store)
        assert await store.find([KEY]) == [RESPONSE]

        async with Redis.from_url(f"redis://127.0.0.1:{port}", password=PASSWORD) as client:
            (name,) = await client.keys(b"tokenwire:responses:1:*")
            await client.delete(name)
            await client.lpush(name, b"not a response")
        store.put(RESPONSE)
        store.put(response_of("resp_behind"))
        await until_written(store)
        assert await store.find([("acme", "resp_behind")]) == [response_of("resp_behind")]
        await store.close()
