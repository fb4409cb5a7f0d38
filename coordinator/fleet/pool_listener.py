"""What the pool reports of its workers: gained capacity, drains, losses, and requests that workers survived."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenwire.coordinator.fleet.submission import Submission

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class PoolListener:
    """Callbacks of the pool; these do nothing, for listeners that need only some of them."""

    def on_capacity(self) -> None:
        """Called when a worker may have gained capacity: it became ready, or sequences ended."""

    def on_worker_draining(self, session: "WorkerSession") -> None:
        """Called while a worker that announced its shutdown is connected."""

    def on_worker_ejected(self, session: "WorkerSession") -> None:
        """Called when a worker is much slower than others, and gets no new requests for a while."""

    def on_worker_readmitted(self, session: "WorkerSession") -> None:
        """Called when it gets new requests again."""

    def on_worker_lost(
        self, model: str, instance_id: str, certain: bool, recent_starts: Sequence[Submission], unproven_at: str = ""
    ) -> None:
        """Called with a lost worker's model and recent starts; `certain`: it is known to be dead.

        `unproven_at`: its address, if it may fail for everybody.
        """

    def on_worker_survived(self, model: str, submission: Submission) -> None:
        """Called when a worker survived the start of a request."""

    def on_workers_changed(self, model: str) -> None:
        """Called with the first name of a model when its workers, or what they serve, may have changed."""

    def on_model_lost(self, model: str) -> None:
        """Called with the first name of a model when its last worker is lost."""
