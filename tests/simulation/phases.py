"""In which phase streams are when something happens to a process or a connection."""

from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum

from tests.simulation.client import SimulatedClient
from tests.simulation.processes import CoordinatorHost, WorkerHost
from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.failover.sequence import ResumableSequence
from tokenwire.worker.simulated_engine.simulated_sequence import Phase, SimulatedSequence


class StreamPhase(StrEnum):
    """How far a stream is."""

    HANDLED = "prepared, or its end sent"
    QUEUED = "queued"
    BETWEEN = "between two workers"
    SENT = "sent, not begun"
    WAITING = "waiting in the engine"
    PREFILL = "in prefill"
    MIDSTREAM = "mid-stream"
    AT_END = "at its end"


IDLE = "idle"
"""Of a process or connection without streams."""
ON_WORKER = (StreamPhase.SENT, StreamPhase.WAITING, StreamPhase.PREFILL, StreamPhase.MIDSTREAM, StreamPhase.AT_END)
"""Phases in which a worker has a stream."""


def phases_on_worker(
    coordinators: Sequence[CoordinatorHost], worker: WorkerHost, owners: Collection[str] | None = None
) -> Counter[str]:
    """Count the streams of a worker by phase, of these coordinators or of all."""
    found: Counter[str] = Counter()
    for coordinator in coordinators:
        core = coordinator.core
        if core is None or not coordinator.is_running or (owners is not None and coordinator.name not in owners):
            continue
        for sequence in core.failover.live:
            if sequence.session is not None and sequence.session.address == worker.address:
                found[_on_worker(sequence, worker)] += 1
    return found or Counter([IDLE])


def phases_of_coordinator(
    coordinator: CoordinatorHost, workers: Sequence[WorkerHost], clients: Sequence[SimulatedClient]
) -> Counter[str]:
    """Count the streams of a coordinator by phase."""
    if coordinator.core is None:
        return Counter([IDLE])
    hosts = {worker.address: worker for worker in workers}
    live = coordinator.core.failover.live
    found = Counter(str(_of(sequence, hosts)) for sequence in live)
    served = {sequence.request.submission.request_id for sequence in live}
    mine = (each for each in clients if each.server_node is coordinator.node and not each.ending)
    found[StreamPhase.HANDLED] += sum(each.request_id not in served for each in mine)
    return +found or Counter([IDLE])


def _of(sequence: ResumableSequence, hosts: dict[str, WorkerHost]) -> StreamPhase:
    if sequence.session is not None:
        return _on_worker(sequence, hosts[sequence.session.address])
    entry = sequence.handle or sequence.request.handle
    return StreamPhase.QUEUED if isinstance(entry, QueuedRequest) and entry.queued else StreamPhase.BETWEEN


def _on_worker(sequence: ResumableSequence, worker: WorkerHost) -> StreamPhase:
    engine, session = worker.engine, sequence.session
    if engine is None or worker.server is None or session is None:
        return StreamPhase.BETWEEN
    if session.instance_id != worker.server._instance_id:
        return StreamPhase.BETWEEN  # its process is gone, and nobody has noticed yet
    name = sequence.request.submission.request_id, sequence.index
    live: Sequence[SimulatedSequence] = [] if engine._scheduler is None else list(engine._scheduler._live.values())
    running = next((each for each in live if (each.sequence.request_id, each.sequence.index) == name), None)
    if running is not None:
        return _in_engine(running, sequence)
    placed = any((each.request_id, each.index) == name for each in engine.placed)
    return StreamPhase.AT_END if placed else StreamPhase.SENT


def _in_engine(running: SimulatedSequence, sequence: ResumableSequence) -> StreamPhase:
    match running.phase:
        case Phase.WAITING if sequence.gained:
            return StreamPhase.MIDSTREAM  # the engine has taken its memory back for a while
        case Phase.WAITING:
            return StreamPhase.WAITING
        case Phase.PREFILL:
            return StreamPhase.PREFILL
    return StreamPhase.MIDSTREAM
