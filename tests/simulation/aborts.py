"""Where the sequences of a fleet are, and which of them an abort must end."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.client import SimulatedClient
from tests.simulation.engines import RecordedEngine
from tests.simulation.processes import CoordinatorHost, WorkerHost


@dataclass(frozen=True, slots=True)
class PlacedSequence:
    """A sequence that is at a worker."""

    owner: CoordinatorHost
    holder: WorkerHost
    request_id: str
    was_lost: bool
    """Whether it was at another worker before, and lost."""
    gained: int
    """Tokens from this worker."""


def placed_sequences(coordinators: Sequence[CoordinatorHost], workers: Sequence[WorkerHost]) -> list[PlacedSequence]:
    """Return the sequences that are at workers, as their coordinators see it."""
    hosts = {worker.address: worker for worker in workers}
    return [
        PlacedSequence(
            coordinator,
            hosts[sequence.session.address],
            sequence.request.submission.request_id,
            bool(sequence.avoid),
            sequence.gained,
        )
        for coordinator in coordinators
        if coordinator.core is not None and coordinator.is_running
        for sequence in coordinator.core.failover.live
        if sequence.session is not None
    ]


def is_reached(client: SimulatedClient, coordinator: CoordinatorHost, coordinators: Sequence[CoordinatorHost]) -> bool:
    """Return whether an abort by a coordinator reaches a client's request.

    It reaches the coordinator's own, and those of others that were sent to a worker, with all of their sequences: not
    their queues, and no request that is still being prepared.
    """
    owner = next((each for each in coordinators if each.node is client.server_node), None)
    if owner is None or owner.core is None:
        return False
    own = [each for each in owner.core.failover.live if each.request.submission.request_id == client.request_id]
    return bool(own) and (owner is coordinator or all(each.engines for each in own))


def engines_that_know(client: SimulatedClient, workers: Sequence[WorkerHost]) -> set[RecordedEngine]:
    """Return the engines of the workers that have recorded that a client's request was aborted."""
    return {
        worker.engine
        for worker in workers
        if worker.is_running and worker.server is not None and worker.engine is not None
        if client.request_id in worker.server._recent_aborts._by_id
    }
