"""The work of tenants in a real Redis: what it counts is what a ledger in memory does, and its failures end nothing."""

import json
import logging
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis

from benchmarks.share_ledger import LedgerStore, ShareLedger
from tests.clock import Clock
from tests.ports import free_port
from tests.redis_server import PASSWORD
from tokenwire.coordinator.fleet.admission.redis_share_store import MOST_TENANTS, RedisShareStore
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport, ShareStore, TenantReport

pytestmark = pytest.mark.npm

WAITS = {"tenant": TenantReport(0.0, 0.0, 1)}


@pytest.fixture
async def stores(redis_url: str, redis: "Redis") -> AsyncIterator[list[RedisShareStore]]:
    """Return the stores of three processes."""
    async with AsyncExitStack() as stack:
        opened = [RedisShareStore(redis_url, PASSWORD) for _ in range(3)]
        for store in opened:
            stack.push_async_callback(store.close)
        yield opened


async def exchanged(store: ShareStore, report: ShareReport) -> SharedTags | None:
    """Return the answer to one report."""
    answers = await store.exchange([report])
    assert answers is not None
    (answer,) = answers
    return answer


async def test_redis_counts_as_the_ledger_does(stores: Sequence[RedisShareStore]) -> None:
    """Whatever processes report, in whatever order: beginnings and ends of periods, give-backs, tenants in several."""
    chance = random.Random(7)
    ledger = ShareLedger(Clock())
    ledgers = [LedgerStore(ledger, str(number)) for number in range(len(stores))]
    periods = [("", "")] * len(stores)
    seen = 0
    for _ in range(400):
        process = chance.randrange(len(stores))
        tenants = {
            tenant: TenantReport(
                chance.randrange(-200, 900),
                chance.randrange(500),
                chance.choice([0, 0, 0, 3]),
                chance.choice([0, 400]),
                weight=1 + "abcde".index(tenant),
            )
            for tenant in chance.sample("abcde", chance.randrange(4))
        }
        reports = [ShareReport("any", period, tenants) for period in periods[process]]
        answer = await exchanged(stores[process], reports[0])
        expected = await exchanged(ledgers[process], reports[1])
        if answer is None or expected is None:
            assert answer is expected is None
            periods[process] = "", ""
            continue
        assert answer.waiting == expected.waiting
        assert answer.virtual_time == pytest.approx(expected.virtual_time)
        assert answer.tags == pytest.approx(expected.tags)
        periods[process] = answer.period, expected.period
        seen += bool(answer.waiting)
    assert seen > 100


async def test_a_process_that_died_does_not_wait(stores: Sequence[RedisShareStore], redis: "Redis") -> None:
    """Nor is anything of a period kept that nobody reports to."""
    dead, alive, _ = stores
    await exchanged(dead, ShareReport("any", "", WAITS))
    answer = await exchanged(alive, ShareReport("any", "", WAITS))
    assert answer is not None
    assert answer.waiting == {"tenant": 1}

    (key,) = await redis.keys("*")
    state = json.loads(await redis.get(key) or "")
    for process in state["processes"].values():
        process["at"] = 1
    await redis.set(key, json.dumps(state))
    answer = await exchanged(alive, ShareReport("any", answer.period, WAITS))

    assert answer is not None
    assert answer.waiting == {}
    assert 0 < await redis.pttl(key) <= 4000


async def test_tenants_that_do_not_wait_are_bounded(stores: Sequence[RedisShareStore]) -> None:
    """Beyond that they are forgotten."""
    many = {f"{number}": TenantReport(0.0, 100.0, 0) for number in range(MOST_TENANTS + 1)}

    answer = await exchanged(stores[0], ShareReport("any", "", {**many, **WAITS}))

    assert answer is not None
    assert answer.tags == {"tenant": 0.0}


async def test_nothing_is_kept_while_nobody_waits(stores: Sequence[RedisShareStore], redis: "Redis") -> None:
    """Neither of what runs, nor when the last that waited does no more."""
    runs = {"tenant": TenantReport(0.0, 256.0, 0)}
    assert await exchanged(stores[0], ShareReport("any", "", runs)) is None
    assert await redis.keys("*") == []

    await exchanged(stores[0], ShareReport("any", "", WAITS))
    assert len(await redis.keys("*")) == 1
    assert await exchanged(stores[0], ShareReport("any", "", {})) is None
    assert await redis.keys("*") == []


async def test_a_failure_is_logged_once_and_paused_after(caplog: pytest.LogCaptureFixture) -> None:
    """There is no answer, and no error."""
    store = RedisShareStore(f"redis://127.0.0.1:{free_port()}", PASSWORD)
    with caplog.at_level(logging.WARNING):
        answers = [await store.exchange([ShareReport("any", "", WAITS)]) for _ in range(2)]
    await store.close()

    assert answers == [None, None]
    assert (store.failures, store.is_paused) == (2, True)
    (record,) = caplog.records
    assert "sharing workers among the tenants of each process by itself" in record.getMessage()
    assert PASSWORD not in caplog.text
