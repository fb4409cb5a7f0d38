"""Bounds of progress: nothing that a coordinator serves stays where it is for longer than its settings allow.

A sequence waits in the queue, is on a worker, or is between two workers; a request without sequences is prepared, or
its last part is being sent. Each of these places has a bound on the time in which nothing happens to it. Time in which
an operator holds the engine, or in which the coordinator or the way to its worker is held up, does not count.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.simulation.client import SimulatedClient
from tests.simulation.network import Connection
from tests.simulation.processes import CoordinatorHost, WorkerHost
from tokenwire.coordinator.app import Core
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.failover.sequence import ResumableSequence
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.worker.simulated_engine.simulated_sequence import Phase

if TYPE_CHECKING:
    from tests.simulation.run import SimulationRun

_NOTICE_S = 4.0
"""Until heartbeats, checks and late timers on slow links have shown what happened."""
_UNCOVERED_S = 60.0
"""How much longer an engine may stall while no other worker could take over."""
_POLLED_S = 0.1
"""How often a queue looks for places at least."""
_DECISION_S = 30.0
"""The most for which a suspect waits until it is known whether its worker died."""
_HANDLING_S = 5.0
"""The most for what is neither generated nor queued: preparing a request, and sending its end."""


class _Wait:
    """What a sequence or request waits for, since when, and for how long it may."""

    def __init__(self) -> None:
        self.place = ""
        self.mark: object = None
        self.since = self.bound_s = 0.0
        self.is_long = False
        """Whether it has waited for more than half of its bound."""


class ProgressWatch:
    """Looks at all that coordinators serve, every now and then."""

    def __init__(self, run: "SimulationRun") -> None:
        self._run = run
        self._world = run.world
        self._waits: dict[ResumableSequence | SimulatedClient, _Wait] = {}

    def check(self) -> None:
        """Report what has waited for too long."""
        run, kept = self._run, self._waits
        self._waits = {}
        for coordinator in run.coordinators:
            core = coordinator.core
            if core is None or not coordinator.is_running:
                continue
            for sequence in core.failover.live:
                place, mark, bound_s = self._state(coordinator, core, sequence)
                self._observe(kept, sequence, sequence.request.submission.request_id, place, mark, bound_s)
            served = {sequence.request.submission.request_id for sequence in core.failover.live}
            for client in self._others(coordinator, served):
                self._observe(kept, client, client.name, "handled", client.tokens, _HANDLING_S)
        self._check_timeouts()

    def _observe(
        self,
        kept: dict[ResumableSequence | SimulatedClient, _Wait],
        waiting: ResumableSequence | SimulatedClient,
        name: str,
        place: str,
        mark: object,
        bound_s: float | None,
    ) -> None:
        """Take the state of what waits; no bound: it is held."""
        now = self._world.time()
        wait = self._waits[waiting] = kept.get(waiting) or _Wait()
        if bound_s is None:
            self._run.seen["held up"] += wait.place != "held"
            place, bound_s, mark = "held", 0.0, now
        if (wait.place, wait.mark) != (place, mark):
            wait.place, wait.mark, wait.since, wait.bound_s, wait.is_long = place, mark, now, bound_s, False
            return
        # A bound grows while there is nobody to take over, and shrinks from then on.
        wait.bound_s = max(wait.bound_s, bound_s)
        waited_s = now - wait.since
        if waited_s > wait.bound_s / 2 and not wait.is_long:
            wait.is_long = True
            self._run.seen[f"half of the bound waited: {place}"] += 1
        if waited_s > wait.bound_s + _NOTICE_S:
            self._run.violate(f"{name} made no progress for {waited_s:.1f} s ({place}: {wait.bound_s:.1f} s)")
            wait.since = now

    def _state(
        self, coordinator: CoordinatorHost, core: Core, sequence: ResumableSequence
    ) -> tuple[str, object, float | None]:
        """Return where a sequence is, what changes with its progress, and the bound; None: it is held."""
        node, session = coordinator.node, sequence.session
        if node is not None and node.frozen:
            return "held", None, None
        if session is not None:
            return "worker", *self._on_worker(coordinator, core, sequence, session)
        entry = sequence.handle or sequence.request.handle
        if isinstance(entry, QueuedRequest) and entry.queued:
            if _has_room(core, entry):
                return "queue, though a worker has room", (entry, len(entry.parts)), _POLLED_S
            # One that was taken back waits for its tenant's turn, however long that takes.
            bound_s = None if entry.placement.preempted else self._run.settings.admission.queue_timeout_s
            return "queue", (entry, len(entry.parts)), bound_s
        detector = core.failover._detector
        # Suspects are retried one after the other, and each has the bounds of its own places.
        waits_for_others = detector._isolated is not None and detector._isolated is not sequence.request
        return "between workers", None, None if waits_for_others else _DECISION_S

    def _on_worker(
        self, coordinator: CoordinatorHost, core: Core, sequence: ResumableSequence, session: WorkerSession
    ) -> tuple[object, float | None]:
        host = next(each for each in self._run.workers if each.address == session.address)
        server, liveness = host.server, self._run.settings.liveness
        mark = session, session.instance_id, sequence.gained
        connections = self._run.network.between(coordinator.name, host.name)
        if not _is_in_touch(host, session.instance_id, connections):
            return (*mark, "silent"), liveness.heartbeat_timeout_s
        assert server is not None
        now = self._world.time()
        # While nothing gets to a worker, its heartbeats come all the same.
        held_up = any(each.to_server.held_until > now - _NOTICE_S for each in connections)
        if server._controller.suspends_stepping or held_up:
            return None, None
        uncovered_s = 0.0 if core.pool.is_covered(session) else _UNCOVERED_S
        stall_s = liveness.engine_stall_timeout_s + server._stall_detector.allowance_s + uncovered_s
        return (*mark, _steps_before(host, sequence)), max(liveness.heartbeat_timeout_s, stall_s)

    def _others(self, coordinator: CoordinatorHost, served: set[str]) -> Iterator[SimulatedClient]:
        """Yield the clients whose requests have no sequences, and who read what they get."""
        node = coordinator.node
        for client in self._run.clients:
            if client.server_node is not node or client.ending or client.request_id in served:
                continue
            if node is not None and not node.frozen and not client.is_slow:
                yield client

    def _check_timeouts(self) -> None:
        """Check that requests end by their timeout, whatever happens to workers and whoever pauses them."""
        timeout_s = self._run.settings.admission.request_timeout_s
        for client in self._run.clients if timeout_s is not None else ():
            node = client.server_node
            if client.ending or client.is_slow or node is None or node.dead or node.frozen or timeout_s is None:
                continue
            waited_s = self._world.time() - max(client.begun_at, node.thawed_at)
            if waited_s > timeout_s + _NOTICE_S:
                self._run.violate(f"{client.name} is served for {waited_s:.1f} s, beyond its timeout")


def _has_room(core: Core, entry: QueuedRequest) -> bool:
    """Return whether a worker has a place for a queued request, which is the first one that may go there."""
    queued = list(core.queue._queues[entry.model])
    return any(
        session.workload.free_capacity(session.breaker.half_open) > 0
        and entry is min((each for each in queued if session in _candidates(core, each)), key=_order)
        for session in _candidates(core, entry)
    )


def _candidates(core: Core, entry: QueuedRequest) -> Sequence[WorkerSession]:
    return core.pool.candidates_to_place(entry.model, entry.submission.lora.id, entry.placement)


def _order(entry: QueuedRequest) -> tuple[bool, int, int]:
    return not entry.placement.resumed, entry.submission.priority, entry.arrival


def _is_in_touch(host: WorkerHost, instance_id: str, connections: Sequence[Connection]) -> bool:
    """Return whether a worker process runs, and what it sends gets through."""
    server, node = host.server, host.node
    if server is None or node is None or node.dead or node.frozen or server._instance_id != instance_id:
        return False
    return not any(each.is_blocked or each.to_client.held_until > each.network.world.time() for each in connections)


def _steps_before(host: WorkerHost, sequence: ResumableSequence) -> int:
    """Return how many steps an engine has made if it has a sequence that waits for its turn; else 0."""
    engine, request_id = host.engine, sequence.request.submission.request_id
    if engine is None or engine._scheduler is None:
        return 0
    own = [each for each in engine._scheduler._live.values() if each.sequence.request_id == request_id]
    return engine.steps_total if any(each.phase is not Phase.RUNNING for each in own) else 0
