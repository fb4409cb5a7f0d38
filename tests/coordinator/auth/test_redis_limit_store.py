"""Limits of API keys in a real Redis: no two processes take the same, and its failures let requests in."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from tests.ports import free_port
from tests.redis_server import PASSWORD
from tokenwire.coordinator.auth.limit_store import SharedUsage
from tokenwire.coordinator.auth.rate_limit import Limits
from tokenwire.coordinator.auth.redis_limit_store import RedisLimitStore

pytestmark = pytest.mark.npm

KEY = b"key"
PATIENT_S = 60.0


@pytest.fixture
async def stores(redis_url: str, redis: "Redis") -> AsyncIterator[list[RedisLimitStore]]:
    """Return the stores of three processes."""
    async with AsyncExitStack() as stack:
        opened = [RedisLimitStore(redis_url, PASSWORD, PATIENT_S) for _ in range(3)]
        for store in opened:
            stack.push_async_callback(store.close)
        yield opened


def refused(usage: SharedUsage | None) -> str:
    """Return the limit that refused."""
    assert usage is not None
    return usage.refused


async def flushed(store: RedisLimitStore) -> None:
    """Return when a store has written what has ended."""
    await store._write(renews=False)


async def test_of_concurrent_requests_as_many_are_let_in_as_the_limit_says(stores: list[RedisLimitStore]) -> None:
    """At once from three processes: neither one more nor one fewer, and again when they have ended."""
    limits = Limits(max_concurrent=10)
    for _ in range(2):
        entries = await asyncio.gather(*(stores[number % 3].enter(KEY, limits) for number in range(60)))
        let_in = [number for number, (_, usage) in enumerate(entries) if not refused(usage)]
        assert len(let_in) == 10
        for number in let_in:
            stores[number % 3].leave(KEY, entries[number][0])
        for store in stores:
            await flushed(store)


async def test_requests_per_minute_are_taken_once(stores: list[RedisLimitStore]) -> None:
    """Each answer has what is left."""
    limits = Limits(requests_per_minute=20)
    usages = [usage for _, usage in await asyncio.gather(*(stores[n % 3].enter(KEY, limits) for n in range(50)))]
    assert [refused(usage) for usage in usages].count("requests") == 30
    assert sorted(int(usage.requests) for usage in usages if usage and not usage.refused) == list(range(20))
    assert not refused((await stores[0].enter(b"another", limits))[1])


async def test_a_burst_is_no_failure_of_redis(redis_url: str, redis: "Redis") -> None:
    """What waits until others of its process were answered is counted all the same."""
    store = RedisLimitStore(redis_url, PASSWORD, timeout_s=1.0)
    for _ in range(16):
        await store._health.places.acquire()
    asked = asyncio.create_task(store.enter(KEY, Limits(requests_per_minute=1)))
    await asyncio.wait([asked], timeout=1.2)
    assert not asked.done()
    for _ in range(16):
        store._health.places.release()

    assert not refused((await asked)[1])
    assert store.failures == 0
    await store.close()


async def test_tokens_are_taken_and_given_back(stores: list[RedisLimitStore]) -> None:
    """Neither two processes get the last, nor does giving back fill it beyond the limit."""
    limits = Limits(tokens_per_minute=600)
    one, other, _ = stores
    usages = await asyncio.gather(*(stores[n % 3].take(KEY, limits, 200) for n in range(9)))
    assert [refused(usage) for usage in usages].count("") == 3

    one.give_back(KEY, limits, 150)
    await flushed(one)
    usage = await other.take(KEY, limits, 150)
    assert usage is not None
    assert (usage.refused, 0 <= usage.tokens < 50) == ("", True)

    one.give_back(KEY, limits, 10_000)
    await flushed(one)
    usage = await other.take(KEY, limits, 600)
    assert usage is not None
    assert (usage.refused, usage.tokens) == ("", 0)


async def test_tokens_beyond_a_reservation_overdraw(stores: list[RedisLimitStore]) -> None:
    """Later requests wait until they are made up for, and the entry is kept until then."""
    limits = Limits(tokens_per_minute=60)
    store = stores[0]
    await store.take(KEY, limits, 60)
    store.give_back(KEY, limits, -600)
    await flushed(store)
    usage = await store.take(KEY, limits, 1)
    assert usage is not None
    assert usage.refused == "tokens"
    assert -600 <= usage.tokens < -590
    assert await store._redis.ttl("tokenwire:limits:1:key") > 600


async def test_buckets_refill_by_redis_clock(stores: list[RedisLimitStore], redis: "Redis") -> None:
    """Those of coordinators may differ."""
    limits = Limits(requests_per_minute=6, tokens_per_minute=60)
    await stores[0].take(KEY, limits, 60)
    seconds, _ = await redis.time()
    await redis.hset("tokenwire:limits:1:key", "at", str(seconds - 30))

    usage = await stores[1].take(KEY, limits, 30)
    assert usage is not None
    assert (usage.refused, 6 >= usage.requests > 5) == ("", True)


async def test_requests_of_a_coordinator_that_died_expire(stores: list[RedisLimitStore], redis: "Redis") -> None:
    """Those of one that lives are renewed, however long they run, also into an empty Redis."""
    limits = Limits(max_concurrent=2)
    dead, alive, other = stores
    await dead.enter(KEY, limits)
    lease, _ = await alive.enter(KEY, limits)
    assert refused((await other.enter(KEY, limits))[1]) == "concurrent"

    seconds, _ = await redis.time()
    for member in await redis.zrange("tokenwire:limits:1:key:running", 0, -1):
        await redis.zadd("tokenwire:limits:1:key:running", {member: seconds - 1})  # type: ignore[type-var]
    await alive._write(renews=True)
    assert [refused((await other.enter(KEY, limits))[1]) for _ in range(2)] == ["", "concurrent"]

    await redis.flushall()
    await alive._write(renews=True)
    assert await redis.zrange("tokenwire:limits:1:key:running", 0, -1) == [lease]
    assert 0 < await redis.ttl("tokenwire:limits:1:key:running") <= 60


async def test_a_coordinator_that_stops_ends_its_requests(redis_url: str, redis: "Redis") -> None:
    """And what they give back is written."""
    limits = Limits(max_concurrent=1, tokens_per_minute=60)
    store = RedisLimitStore(redis_url, PASSWORD, PATIENT_S)
    await store.enter(KEY, limits)
    await store.take(KEY, limits, 60)
    store.give_back(KEY, limits, 60)
    await store.close()

    assert await redis.zcard("tokenwire:limits:1:key:running") == 0
    assert float(await redis.hget("tokenwire:limits:1:key", "tokens") or 0) == 60


async def test_requests_that_end_while_redis_is_away_end_when_it_is_back(redis_url: str, redis: "Redis") -> None:
    """Else the key would be full for a minute, with nothing running."""
    limits, store = Limits(max_concurrent=1), RedisLimitStore(redis_url, PASSWORD)
    lease, _ = await store.enter(KEY, limits)
    await redis.client_pause(60_000, all=False)
    store.leave(KEY, lease)
    await flushed(store)
    assert store.failures == 1
    await redis.client_kill_filter(_type="normal", skipme=True)  # with what it has sent
    await redis.client_unpause()

    await flushed(store)
    assert await redis.zcard("tokenwire:limits:1:key:running") == 0
    await store.close()


async def test_an_abandoned_entry_is_taken_back(redis_url: str, redis: "Redis") -> None:
    """A request that is cancelled while it asks leaves nothing."""
    store = RedisLimitStore(redis_url, PASSWORD, PATIENT_S)
    entering = asyncio.create_task(store.enter(KEY, Limits(max_concurrent=1)))
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await flushed(store)
    await store.close()

    assert await redis.zcard("tokenwire:limits:1:key:running") == 0


async def test_a_failing_redis_lets_requests_in(caplog: pytest.LogCaptureFixture) -> None:
    """With one log record that has no password, and a count; while it is skipped nothing waits for it."""
    caplog.set_level(logging.WARNING)
    limits = Limits(max_concurrent=1, tokens_per_minute=1)
    store = RedisLimitStore(f"redis://127.0.0.1:{free_port()}", PASSWORD)
    for _ in range(3):
        lease, usage = await store.enter(KEY, limits)
        assert usage is None
        assert await store.take(KEY, limits, 10) is None
        store.leave(KEY, lease)
    await store.close()

    assert store.failures == 1
    assert [record.message for record in caplog.records if "limiting API keys in each process" in record.message]
    assert PASSWORD not in caplog.text


async def test_a_redis_that_does_not_answer_is_waited_for_briefly() -> None:
    """It accepts connections, and is silent."""
    silent: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.append(writer)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        store = RedisLimitStore(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", None)
        async with asyncio.timeout(60):
            usages = await asyncio.gather(*(store.take(KEY, Limits(tokens_per_minute=1), 1) for _ in range(200)))
        assert usages == [None] * 200
        await store.close()
        for writer in silent:
            writer.close()
