"""What a session with a worker reports to whoever keeps the sessions."""

from typing import TYPE_CHECKING

from tokenwire.v1 import inference_pb2 as pb

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class SessionListener:
    """Callbacks of a session. This one takes none of them: it is for a session by itself."""

    def on_session_change(self, session: "WorkerSession") -> None:
        """Handle that the session's state or its worker's may have changed."""

    def on_slots_freed(self) -> None:
        """Handle that sequences ended, or that a worker may begin with more than before."""

    def on_cache_change(self, session: "WorkerSession", change: pb.CacheChange) -> None:
        """Handle what the worker's prefix cache stored and dropped."""

    def on_survived(self, session: "WorkerSession", submit: pb.Submit) -> None:
        """Handle that the worker got past the beginning of a request."""

    def is_covered(self, session: "WorkerSession") -> bool:
        """Return whether another worker could go on with the requests of one that stalls."""
        return True
