"""What must hold of a whole fleet: at every moment, and once all requests have ended."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.simulation.processes import CoordinatorHost, WorkerHost
from tests.simulation.retained import coordinator_tables, worker_tables
from tests.simulation.serving_states import OrderedRecords
from tests.simulation.skew import without_unknown
from tests.simulation.world import Node
from tokenwire.coordinator.app import Core
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState

MODEL = "simulated"
"""The name of the model that all workers serve."""
_COORDINATOR_TASKS = {
    "CoordinatorHost._main": False,
    "Discovery._follow": False,
    "RedisStore._write_all": False,
    "WorkerPool._check_keys": False,
    "ClientCall._send": True,
    "LivenessMonitor._watch": True,
    "WorkerSession.run": True,
}
"""What a coordinator does for good, and whether it does it for each worker."""
_WORKER_TASKS = {
    "WorkerHost._main": False,
    "Event.wait": False,
    "WorkerServer._deliver_steps": False,
    "WorkerServer._send_heartbeats": False,
    "ServedCall._run": True,
    "Session._send": True,
}
"""What a worker does for good, and whether it does it for each coordinator."""


class Epochs:
    """The desired states of coordinators only move forward."""

    def __init__(self) -> None:
        self._newest: dict[Node, int] = {}

    def problems(self, coordinators: Sequence[CoordinatorHost]) -> Iterator[str]:
        """Yield the coordinator processes whose epoch has gone back since the last call."""
        for coordinator in coordinators:
            if coordinator.node is not None and coordinator.core is not None:
                state = coordinator.core.pool._desired.get(MODEL)
                epoch = 0 if state is None else state.epoch
                before = self._newest.get(coordinator.node, 0)
                self._newest[coordinator.node] = max(epoch, before)
                if epoch < before:
                    yield f"{coordinator.name} went back from epoch {before} to {epoch}"


def slots_problems(coordinator: CoordinatorHost) -> Iterator[str]:
    """Yield the sessions of a coordinator with fewer open slots than none: cheap, so it is asked after each turn."""
    for session in () if coordinator.core is None else coordinator.core.pool.sessions:
        if session.open_slots < 0:
            yield f"{coordinator.name} has {session.open_slots} open slots at {session.address}"


def violations_now(coordinators: Sequence[CoordinatorHost]) -> Iterator[str]:
    """Yield what is wrong at this moment."""
    for coordinator in coordinators:
        core = coordinator.core
        if core is None or not coordinator.is_running:
            continue
        owned = sum(1 for each in core.failover.live if each.session is not None)
        for session in core.pool.sessions:
            running = core.pool._reconciler._tasks.get(session)
            if core.pool._reconciler._has_drifted(session) and (running is None or running.done()):
                yield f"{coordinator.name} leaves {session.address} as it is, though it has drifted"
        if owned > core.pool.open_slots:
            yield f"{coordinator.name} has {owned} placed sequences in {core.pool.open_slots} open slots"
        for what in () if core.readiness.stopping else _gone_workers(core.pool):  # it closes all sessions at once
            yield f"{coordinator.name} keeps {what} that are gone"


def _gone_workers(pool: WorkerPool) -> Iterator[str]:
    """Yield what a router knows of workers that are not listed any more, or have been replaced."""
    router = pool._router
    alive = {session.instance_id for session in pool.sessions}
    if not router._last_turn.keys() <= alive:
        yield "workers in its router"
    addresses = {session.address for session in pool.sessions}
    if not (router._prefixes._bits.keys() | router._shares.keys()) <= addresses:
        yield "prefixes of workers"
    if not router._caches.keys() <= addresses:
        yield "caches of workers"


def made_up(coordinators: Sequence[CoordinatorHost], ordered: OrderedRecords) -> Iterator[str]:
    """Yield the coordinators that desire what none of them ordered."""
    for coordinator in coordinators:
        state = None if coordinator.core is None else coordinator.core.pool._desired.get(MODEL)
        if state is not None and not all(map(ordered.includes, state.records)):
            yield f"{coordinator.name} desires what no coordinator has ordered"


def epochs_of(workers: Sequence[WorkerHost]) -> set[int]:
    """Return the newest operations that workers have carried out."""
    servers = [worker.server for worker in workers if worker.is_running]
    return {server._controller.state.epoch for server in servers if server is not None}


def leftovers(coordinators: Sequence[CoordinatorHost], workers: Sequence[WorkerHost]) -> list[str]:
    """Return what is left though no request is."""
    found: list[str] = []
    for coordinator in coordinators:
        assert coordinator.core is not None
        assert coordinator.http is not None
        found += [f"{coordinator.name} {problem}" for problem in _coordinator_leftovers(coordinator.core, len(workers))]
        found += _left_tasks(coordinator.node, _COORDINATOR_TASKS, len(workers))
        if coordinator.http.tasks:
            found.append(f"{coordinator.name} still serves {len(coordinator.http.tasks)} requests")
    for worker in workers:
        found += [f"{worker.name} {problem}" for problem in _worker_leftovers(worker, len(coordinators))]
        found += _left_tasks(worker.node, _WORKER_TASKS, len(coordinators))
    desired = {_desired(each, workers) for each in coordinators}
    if len(desired) > 1:
        found.append("the coordinators want different states")
    return found


def _desired(coordinator: CoordinatorHost, workers: Sequence[WorkerHost]) -> tuple[bytes, ...]:
    """Return what a coordinator wants of each worker."""
    assert coordinator.core is not None
    targets = []
    for worker in workers:
        assert worker.server is not None
        target = coordinator.core.pool._desired.target(MODEL, worker.server._controller.state)
        target.ClearField("records")  # a coordinator of an older version has made its own
        targets.append(without_unknown(target).SerializeToString(deterministic=True))
    return tuple(targets)


def _coordinator_leftovers(core: Core, workers: int) -> Iterator[str]:
    pool = core.pool
    if core.readiness.in_flight:
        yield f"serves {core.readiness.in_flight} requests"
    if len(pool.sessions) != workers:
        yield f"has {len(pool.sessions)} sessions"
    for session in pool.sessions:
        if session.state is not SessionState.READY:
            yield f"finds {session.address} {session.state.value}: {session.last_error}"
        elif reason := pool.out_of_sync(session):
            yield f"finds {session.address} out of sync: {reason}"
    yield from coordinator_tables(core, time.monotonic())


def _left_tasks(node: Node | None, expected: Mapping[str, bool], peers: int) -> list[str]:
    """Return the tasks of a process that are too many though it serves nothing."""
    assert node is not None
    names = Counter(getattr(task.get_coro(), "__qualname__", "") for task in node.tasks if not task.done())
    return [
        f"{node.name} keeps {count} tasks of {name}"
        for name, count in names.items()
        if count > (peers if expected.get(name) else name in expected)
    ]


def _worker_leftovers(worker: WorkerHost, coordinators: int) -> Iterator[str]:
    server, engine = worker.server, worker.engine
    assert server is not None
    assert engine is not None
    kept: dict[str, object] = {
        "open slots": server._open_slots(),
        "sequences in its engine": engine.open_sequences,
        "memory in its engine": engine._kv.used,
        "pending tokens": server._stall_detector._pending_tokens,
    }
    for what, value in kept.items():
        if value:
            yield f"keeps {what}: {value}"
    yield from worker_tables(server)
    listed = {adapter.id for adapter in server._controller.state.adapters}
    if unlisted := engine._loras.keys() - listed - engine.loaded_on_demand:
        yield f"keeps adapters that its state does not list: {sorted(unlisted)}"
    if len(server._sessions) != coordinators:
        yield f"has {len(server._sessions)} sessions"
