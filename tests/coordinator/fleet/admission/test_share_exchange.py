"""The shares of tenants whose requests are in the queues of several processes, in front of the same workers."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.coordinator.fleet.admission.fakes import CapacityWorkers, enqueue
from tests.coordinator.fleet.admission.shared_places import Load, TwoProcesses
from tests.workers import until
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.admission.share_exchange import ShareExchange
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport
from tokenwire.coordinator.fleet.admission.shares import Shares
from tokenwire.coordinator.fleet.request_handle import Placement

LOADS = [
    Load(0, "greedy", 1, prompt_tokens=20, reply_tokens=400, requests=40),
    Load(1, "heavy", 2, prompt_tokens=50, reply_tokens=160, requests=40),
    Load(0, "divided", 1, prompt_tokens=400, reply_tokens=40, requests=20),
    Load(1, "divided", 1, prompt_tokens=400, reply_tokens=40, requests=20),
]


async def test_tenants_of_several_processes_get_their_shares() -> None:
    """By weight, of all work together: neither who has requests in both gets more, nor who looks first."""
    processes = TwoProcesses(places=20)
    served = await processes.run(LOADS, 1500)
    processes.stop()

    total = served.total()
    shares = [served[tenant] / total for tenant in ("greedy", "heavy", "divided")]
    assert shares == pytest.approx([0.25, 0.5, 0.25], rel=0.1)
    running = sum(part.running() != [] for workers in processes.workers for part in workers.parts)
    assert running + processes.places.free == 20


async def test_without_a_store_who_looks_first_gets_all() -> None:
    """The processes know nothing of each other."""
    processes = TwoProcesses(places=20, stored=False)
    served = await processes.run(LOADS, 300)
    processes.stop()

    assert served["heavy"] == 0


async def test_no_place_stays_free_for_long_while_somebody_waits() -> None:
    """What is left for others is taken by them."""
    processes = TwoProcesses(places=20)
    free: list[int] = []
    for _ in range(100):
        await processes.run([] if free else LOADS, 10)
        free.append(processes.places.free)
    processes.stop()

    assert sum(free) / len(free) < 2


async def test_a_tenant_that_comes_later_goes_before_one_that_fills_the_workers() -> None:
    """It waits in another process, and takes the next places, until it has as much."""
    processes = TwoProcesses(places=8)
    greedy = Load(0, "greedy", 1, prompt_tokens=10, reply_tokens=200, requests=8)
    await processes.run([greedy], 200)
    processes.served.clear()

    served = await processes.run([Load(1, "late", 1, prompt_tokens=10, reply_tokens=200, requests=8)], 1000)
    processes.stop()

    assert served["late"] == pytest.approx(served["greedy"], rel=0.1)


async def test_who_is_less_urgent_leaves_places_to_another_process() -> None:
    """As in one process, whatever weights are; what nobody wants is used."""
    processes = TwoProcesses(places=20)
    served = await processes.run([replace(LOADS[0], priority=1)], 100)
    before = served["greedy"]
    await processes.run([replace(LOADS[1], requests=15)], 300)
    served.clear()
    await processes.run([], 700)
    processes.stop()

    assert before > 0
    assert served["heavy"] / served.total() == pytest.approx(15 / 20, rel=0.1)


async def test_the_most_urgent_priorities_are_exchanged() -> None:
    """Clients choose priorities, so one of them can't keep others from being shared."""
    queue = AdmissionQueue(CapacityWorkers(), AdmissionSettings(max_queue=1000))
    exchange = ShareExchange(store := FailingStore(), queue.shares)
    for priority in range(-100, 1):
        enqueue(queue, "another", Placement(tenant="another"), priority=-priority)
    for _ in range(3):
        await exchange.exchange()
    queue.abort(None)

    assert [len(report.tenants) for report in store.reports] == [1] * 3 * 64
    assert store.priorities is not None
    assert {*store.priorities.tenants} == {str(priority) for priority in range(64)}


class FailingStore:
    """A store that answers until the test says otherwise."""

    def __init__(self) -> None:
        self.failures = 0
        self.is_paused = False
        self.answer: SharedTags | None = None
        self.fails = False
        self.reports: list[ShareReport] = []
        self.priorities: ShareReport | None = None

    async def exchange(self, reports: Sequence[ShareReport]) -> Sequence[SharedTags | None] | None:
        """Record, and answer: of priorities, which the last report has, nothing waits elsewhere."""
        self.reports += reports[:-1]
        self.priorities = reports[-1]
        return None if self.fails else [self.answer] * (len(reports) - 1) + [None]

    async def close(self) -> None:
        """Do nothing."""


def waiting_queue() -> tuple[AdmissionQueue, CapacityWorkers, Shares]:
    """Return a queue with one request of a tenant."""
    workers = CapacityWorkers()
    queue = AdmissionQueue(workers, AdmissionSettings())
    enqueue(queue, "own", Placement(tenant="own"))
    ((_, _, shares),) = queue.shares()
    return queue, workers, shares


ELSEWHERE = SharedTags("period", 0.0, {"other": -1.0}, {"other": 5})
"""Somebody who goes first, and wants all places."""


@pytest.mark.parametrize("pauses", [False, True])
async def test_without_an_answer_each_process_counts_by_itself(pauses: bool) -> None:
    """Nothing is left for others, of which nothing is known any more."""
    queue, workers, shares = waiting_queue()
    store = FailingStore()
    exchange = ShareExchange(store, queue.shares)
    store.answer = ELSEWHERE
    await exchange.exchange()
    await workers.add_capacity()
    assert workers.started == []

    store.fails, store.is_paused = not pauses, pauses
    await exchange.exchange()
    await workers.add_capacity(0)

    assert (workers.started, shares.period) == (["own"], "")


async def test_a_request_that_finds_room_leaves_it_to_others() -> None:
    """Also if nobody waits here."""
    queue, workers, _ = waiting_queue()
    exchange = ShareExchange(store := FailingStore(), queue.shares)
    await workers.add_capacity()
    store.answer = SharedTags("period", 0.0, {"other": 0.0}, {"other": 2})
    await exchange.exchange()

    workers.capacities[0] = 2
    enqueue(queue, "next", Placement(tenant="own"))
    assert workers.started == ["own", "next"]  # both have had nothing in this period

    enqueue(queue, "late", Placement(tenant="own"))
    assert workers.started == ["own", "next"]
    queue.abort(None)


async def test_nothing_is_sent_while_nothing_waits_or_runs() -> None:
    """And what only runs is asked for now and then."""
    queue = AdmissionQueue(workers := CapacityWorkers(2), AdmissionSettings())
    exchange = ShareExchange(store := FailingStore(), queue.shares)
    await exchange.exchange()
    assert store.reports == []

    handle, _ = enqueue(queue, "runs", Placement(tenant="own"))
    await exchange.exchange(asks=False)
    assert store.reports == []
    await exchange.exchange(asks=True)
    (report,) = store.reports
    assert [(each.in_advance, each.waiting) for each in report.tenants.values()] == [(256.0, 0)]

    handle.abort()
    await exchange.exchange()
    assert (len(store.reports), workers.started) == (1, ["runs"])


async def test_tenants_and_models_are_not_named_in_a_store() -> None:
    """Only hashes of them, which are the same in all processes."""
    queue, _, _ = waiting_queue()
    exchange = ShareExchange(store := FailingStore(), queue.shares)
    store.answer = ELSEWHERE
    await exchange.exchange()
    queue.abort(None)

    (report,) = store.reports
    assert store.priorities is not None
    assert all(len(name) == 32 for name in [report.name, *report.tenants, store.priorities.name])
    assert "own" not in report.tenants


async def test_an_exchange_is_repeated_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    """An error is logged, and ends nothing."""
    queue, _, shares = waiting_queue()

    class Broken(FailingStore):
        async def exchange(self, reports: Sequence[ShareReport]) -> Sequence[SharedTags | None] | None:
            if not self.failures:
                self.failures += 1
                raise RuntimeError("broken")
            return await super().exchange(reports)

    store = Broken()
    store.answer = ELSEWHERE
    exchange = ShareExchange(store, queue.shares)
    with caplog.at_level(logging.ERROR):
        exchange.start()
        await until(lambda: shares.period == "period")
        await exchange.stop()
    queue.abort(None)

    assert "the work of tenants was not exchanged" in caplog.text
