"""What is left in a table that should be empty, or is beyond its bound, is found."""

import asyncio
from array import array
from collections.abc import Callable

import pytest

from tests.clock import Clock
from tests.coordinator.fleet.admission.fakes import QueuedPart
from tests.simulation.retained import coordinator_tables, history_problems, prefix_problems, worker_tables
from tests.workers import Listener
from tokenwire.coordinator.app import Core, build_core
from tokenwire.coordinator.auth.api_keys import ApiKey
from tokenwire.coordinator.fleet.admission.fair_queue import FairQueue, _GroupQueue
from tokenwire.coordinator.fleet.admission.shares import Shares
from tokenwire.coordinator.fleet.admission.work_meter import WorkMeter
from tokenwire.coordinator.fleet.outliers import _Ejections
from tokenwire.coordinator.fleet.placed_memory import MemoryClaim
from tokenwire.coordinator.fleet.pool import _Member
from tokenwire.coordinator.fleet.prefix_index import PrefixIndex
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.starvation import _Wait
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.turns import Turn
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.services.session import Session
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine, SimulationSettings

_NOW = 1000.0


@pytest.fixture
def core() -> Core:
    """A coordinator that serves nothing."""
    return build_core(CoordinatorSettings(workers=("10.0.0.1:50051",)), coordinator_id="c0")


def _unconnected_session(core: Core) -> WorkerSession:
    """Add a session that does not connect."""
    address = "10.0.0.1:50051"
    session = WorkerSession(address, "c0", core.models.prepare, core.pool)
    core.pool._members[address] = _Member(session, asyncio.create_task(asyncio.sleep(0)))
    return session


def _many_fingerprints() -> dict[bytes, float]:
    return {number.to_bytes(2, "big"): 0.0 for number in range(1025)}


def _queue(core: Core) -> FairQueue:
    return core.queue._queues.setdefault("m", FairQueue())


def _shares(core: Core) -> Shares:
    return _queue(core).shares.setdefault(0, Shares())


def _start_long_ago(core: Core) -> None:
    starts = _unconnected_session(core).recent_starts
    starts._prefilled[0] = 1


@pytest.mark.parametrize(
    ("leave", "found"),
    [
        (lambda core: core.failover._detector._deaths.update({object(): {}}), "deaths of requests that have ended"),
        (lambda core: core.failover._detector._sequences.update({object(): []}), "for isolated retries"),
        (lambda core: core.failover._waiting.append(object()), "sequences in failover"),
        (lambda core: core.failover._draining.append(object()), "draining workers"),
        (lambda core: core.failover.poison_cache.poison.update(_many_fingerprints()), "1025 poison requests"),
        (
            lambda core: _queue(core)._groups.update(
                {(0, None, False, "", frozenset(), False, frozenset(), "", None): _GroupQueue()}
            ),
            "keeps 1 groups of queued requests",
        ),
        (
            lambda core: (
                _queue(core)
                .shares.setdefault(0, Shares())
                .of("t", 1)
                .meters.update({WorkMeter(QueuedPart(Submission(), []), [], 0): None})
            ),
            "keeps 1 shares in use",
        ),
        (lambda core: core.queue.placed_memory.take(MemoryClaim(5)), "5 bytes of placed requests"),
        (lambda core: core.queue._memory._parts.update({"tenant": object()}), "tenants of queued requests"),
        (lambda core: core.queue._expected.waiting.update(["m"]), "requests of expected models"),
        (lambda core: _unconnected_session(core)._slots.take(Listener()), "slots of 10.0.0.1:50051"),
        (lambda core: _unconnected_session(core)._slots.listeners.append(Listener()), "listeners of 10.0.0.1:50051"),
        (lambda core: _unconnected_session(core)._slots.silent.add(0), "10.0.0.1:50051 may starve"),
        (lambda core: _unconnected_session(core)._starvation._waits.update({7: _Wait()}), "never had"),
        (lambda core: _unconnected_session(core).recent_starts.on_submit([0], Submission()), "has just started"),
        (_start_long_ago, "started long ago"),
        (lambda core: _unconnected_session(core).workload.on_submit([0], 7), "prompts of 10.0.0.1:50051"),
        (lambda core: core.pool._reconciler._tasks.update({object(): object()}), "keeps 1 reconciliations"),
        (lambda core: core.pool._reconciler._errors.update({object(): "no"}), "errors of reconciliations"),
        (lambda core: core.pool._reconciler._aside.add(object()), "workers set aside"),
        (lambda core: core.pool.sequences_by_revision.update([("m", "gone")]), "revisions that are gone"),
        (lambda core: core.pool.stats_by_model.update({"gone": object()}), "models that are gone"),
        (lambda core: core.pool._outliers._paces.update({"10.0.0.9:1": object()}), "workers that are gone"),
        (lambda core: core.pool._outliers._ejections.update({"10.0.0.1:1": _Ejections(1, _NOW - 40)}), "an ejection"),
        (lambda core: core.models._absent.update({"m": 0.0}), "models without workers"),
        (lambda core: core.models._models.update({"m": object()}), "models that no revision is"),
        (lambda core: core.models._revisions.update({"m": {ModelRevision(): object()}}), "that no worker has"),
        (lambda core: core.accounts.of(ApiKey(b"k", "t"))._enter(), "as running"),
    ],
)
async def test_what_a_coordinator_keeps_is_found(core: Core, leave: Callable[[Core], object], found: str) -> None:
    """Each table is looked at."""
    assert not list(coordinator_tables(core, _NOW))
    leave(core)
    problems = list(coordinator_tables(core, _NOW))
    assert any(found in problem for problem in problems), problems


async def test_what_a_worker_keeps_is_found() -> None:
    """Each table is looked at."""
    engine = SimulatedEngine(SimulationSettings())
    server = WorkerServer(engine, WorkerSettings("127.0.0.1:0"))
    session = Session(engine, server)
    server._sessions[session] = None
    assert not list(worker_tables(server))
    server._stall_detector._open[object()] = 0  # type: ignore[index]
    server._controller._changes.add(object())  # type: ignore[arg-type]
    session._preparing[object()] = 0  # type: ignore[index]
    session.frame_buffer.add_tokens(0, [1])
    server._recent_aborts._by_id = dict.fromkeys(map(str, range(65_537)), 0.0)
    assert len(list(worker_tables(server))) == 5


def _store(time: Clock) -> MemoryStore:
    """Return a store with a conversation of two turns, and another one."""
    store = MemoryStore(max_bytes=10_000, ttl_s=10.0, clock=time)
    first = Turn(array("I", [1, 2]), None, "token")
    store.put([b"1"], first)
    store.put([b"2"], Turn(array("I", [3]), first, "token"))
    time.now += 1.0
    store.put([b"3"], Turn(array("I", [4]), None, "token"))
    return store


def test_history_within_its_bounds_is_no_problem(time: Clock) -> None:
    """Whatever is found, replaced, evicted and expires."""
    store = _store(time)
    assert not list(history_problems(store))
    store.put([b"1"], Turn(array("I", [5]), None, "token"))
    assert not list(history_problems(store))
    time.now += 9.5
    store.put([b"4"], Turn(array("I", [6]), None, "token"))
    assert not list(history_problems(store))
    assert len(store) < 4


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda store: setattr(store, "_max_bytes", 100), "may keep 100"),
        (lambda store: setattr(store, "size", 0), "counts 0 bytes"),
        (lambda store: store._hold(Turn(array("I", [9]), None, "token"), ""), "nothing refers to"),
        (lambda store: store._entries.move_to_end(b"1"), "out of the order"),
        (lambda store: setattr(store, "_ttl_s", 1.0), "beyond its time"),
    ],
)
def test_history_beyond_its_bounds_is_found(time: Clock, spoil: Callable[[MemoryStore], object], found: str) -> None:
    """Its size, what it refers to, its order and its age."""
    store = _store(time)
    spoil(store)
    assert any(found in problem for problem in history_problems(store)), list(history_problems(store))


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda index: index._bits.pop("a"), "that no worker has"),
        (lambda index: index._bits.update(c=1), "that no worker has"),
        (lambda index: setattr(index, "_removed", ((1 << 33) - 1) << 8), "33 removed workers"),
        (lambda index: index._young.update({7: 1 << 50}), "workers that it does not know"),
    ],
)
def test_bits_of_workers_that_are_gone_are_found(spoil: Callable[[PrefixIndex], object], found: str) -> None:
    """In an index of prefixes a removed worker keeps its bit until the next sweep."""
    index = PrefixIndex()
    for worker in "xab":
        index.add(worker, [1, 2])
    index.remove_worker("x")
    assert not list(prefix_problems(index))
    spoil(index)
    assert any(found in problem for problem in prefix_problems(index)), list(prefix_problems(index))
