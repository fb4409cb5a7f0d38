"""What is known of the workers of a model, without asking them: for clients that want to see the fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.fleet.operations import FleetControl
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import SessionState, WorkerSession
from tokenwire.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker."""

    address: str
    session: str
    """connecting, ready, stalled or draining."""
    serving: pb.ServingState
    """The state that it announced last; old while it is not connected."""
    reason: str
    """Why it gets no new requests; empty when it gets some."""
    problem: str
    """Why it cannot be made like the others; empty when nothing is known against it."""

    @property
    def connected(self) -> bool:
        """Whether what is said of it is true now."""
        return self.session != SessionState.CONNECTING.value

    @property
    def pause_state(self) -> str:
        """running, paused or sleeping; unknown without a connection."""
        if not self.connected:
            return "unknown"
        return "sleeping" if self.serving.sleeping else "paused" if self.serving.paused else "running"

    def as_dict(self) -> dict[str, Any]:
        """Describe it for clients."""
        known = self.connected
        return {
            "worker": self.address,
            "session": self.session,
            "pause_state": self.pause_state,
            "weight_version": self.serving.weight_version if known else None,
            "weights_path": self.serving.weights_path or None if known else None,
            "loras": [adapter.name for adapter in self.serving.adapters] if known else [],
            "epoch": self.serving.epoch if known else None,
            "gets_requests": not self.reason,
            "reason": self.reason or None,
            "problem": self.problem or None,
        }


class FleetStatus:
    """Looks at the workers of a model, which any of its names stands for; no name: the only model."""

    def __init__(self, pool: WorkerPool, control: FleetControl) -> None:
        self._pool = pool
        self._control = control

    def workers(self, model: str | None) -> list[WorkerStatus]:
        """Return all workers. Raises NotFound, InvalidRequest or Unavailable."""
        return [self.of(session) for session in self._control.sessions(model)]

    def connected(self, model: str | None) -> list[WorkerStatus]:
        """Return the connected ones: at least one. Raises as `workers`."""
        return [worker for worker in self.workers(model) if worker.connected]

    def models(self) -> Sequence[str]:
        """Return the first name of every model, sorted."""
        return sorted({session.name for session in self._pool.sessions} - {""})

    def of(self, session: WorkerSession) -> WorkerStatus:
        """Look at one worker."""
        reason = self._pool.out_of_sync(session)
        if session.state is SessionState.CONNECTING:
            reason = session.last_error
        elif session.state is SessionState.DRAINING:
            reason = "it is draining"
        elif session.state is SessionState.STALLED:
            reason = "its engine makes no steps"
        problem = self._pool.problem(session)
        return WorkerStatus(session.address, session.state.value, session.serving, reason, problem)


def common_version(workers: Sequence[WorkerStatus]) -> str | None:
    """Return the weight version of all connected workers, None when they differ."""
    versions = {worker.serving.weight_version for worker in workers if worker.connected}
    return versions.pop() if len(versions) == 1 else None
