"""The status of a model's workers, from what they announced: no worker is queried for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of one worker."""

    address: str
    session: str
    """connecting, ready, stalled or draining."""
    serving: pb.ServingState
    """The state that it announced last; stale while it is not connected."""
    reason: str
    """Why it gets no new requests; empty when it is routable."""
    reconcile_error: str
    """The last error of reconciling it; empty without one."""
    revision: ModelRevision = field(default=ModelRevision())
    """What it serves."""

    @property
    def connected(self) -> bool:
        """Whether there is a session, so that the status is current."""
        return self.session != SessionState.CONNECTING.value

    @property
    def weights_origin(self) -> str:
        """Where its weights are from: its start, a directory, or a transfer."""
        if self.serving.weights_path:
            return "directory"
        return "transfer" if self.serving.weights_epoch else "start"

    @property
    def pause_state(self) -> str:
        """running, paused or sleeping; unknown without a connection."""
        if not self.connected:
            return "unknown"
        return "sleeping" if self.serving.sleeping else "paused" if self.serving.paused else "running"


class FleetStatus:
    """Reports on the workers of a model, by any of its names; no name: the only model."""

    def __init__(self, pool: WorkerPool, admin: FleetAdmin) -> None:
        self._pool = pool
        self._admin = admin

    def workers(self, model: str | None) -> list[WorkerStatus]:
        """Return the status of all workers. Raises NotFound, InvalidRequest or Unavailable."""
        return [self.of(session) for session in self._admin.sessions(model)]

    def connected(self, model: str | None) -> list[WorkerStatus]:
        """Return the connected workers, at least one. Raises the errors of `workers`."""
        return [worker for worker in self.workers(model) if worker.connected]

    def models(self) -> Sequence[str]:
        """Return the first name of every model, sorted."""
        return sorted({session.model_name for session in self._pool.sessions} - {""})

    def of(self, session: WorkerSession) -> WorkerStatus:
        """Return the status of one worker."""
        reason = self._pool.out_of_sync(session) or session.ejected or session.withheld
        if session.state is SessionState.CONNECTING:
            reason = session.last_error
        elif session.state is SessionState.DRAINING:
            reason = "it is draining"
        elif session.state is SessionState.STALLED:
            reason = "its engine is stalled"
        error = self._pool.reconcile_error(session)
        return WorkerStatus(session.address, session.state.value, session.serving, reason, error, session.revision)


def common_version(workers: Sequence[WorkerStatus]) -> str | None:
    """Return the weight version of all connected workers; None when they differ."""
    versions = {worker.serving.weight_version for worker in workers if worker.connected}
    return versions.pop() if len(versions) == 1 else None
