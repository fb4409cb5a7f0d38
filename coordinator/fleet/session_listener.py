"""What a session reports to its pool: its state, and callbacks."""

import enum
from typing import TYPE_CHECKING

from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class SessionState(enum.Enum):
    """The state of a session."""

    CONNECTING = "connecting"
    READY = "ready"
    STALLED = "stalled"
    """Connected, but its engine makes no steps, and no other worker could take over."""
    DRAINING = "draining"


class SessionListener:
    """Callbacks of a session; these do nothing, for a session outside a pool."""

    def on_session_change(self, session: "WorkerSession") -> None:
        """Called when the state of the session or of its worker may have changed."""

    def on_slots_freed(self) -> None:
        """Called when sequences ended or the worker's capacity grew."""

    def on_cache_change(self, session: "WorkerSession", change: pb.CacheChange) -> None:
        """Called with the blocks that the worker's prefix cache stored and evicted."""

    def on_survived(self, session: "WorkerSession", submit: pb.Submit) -> None:
        """Called when the worker survived the start of a request."""

    def is_covered(self, session: "WorkerSession") -> bool:
        """Return whether another worker could take over the requests of one that stalls."""
        return True
