"""What a session reports to its pool: its state, and callbacks."""

import enum
from typing import Generic, TypeVar

from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

S = TypeVar("S", contravariant=True)
"""The session that calls: a parameter, because sessions import this module."""


class SessionState(enum.Enum):
    """The state of a session."""

    CONNECTING = "connecting"
    READY = "ready"
    STALLED = "stalled"
    """Connected, but its engine makes no steps, and no other worker could take over."""
    DRAINING = "draining"


class SessionListener(Generic[S]):
    """Callbacks of a session; these do nothing, for a session outside a pool."""

    def on_session_change(self, session: S) -> None:
        """Called when the state of the session or of its worker may have changed."""

    def on_slots_freed(self) -> None:
        """Called when sequences ended or the worker's capacity grew."""

    def on_kv_events(self, session: S, change: pb.CacheChange) -> None:
        """Called with the blocks that the worker's prefix cache stored and evicted."""

    def on_survived(self, session: S, submission: Submission) -> None:
        """Called when the worker survived the start of a request."""

    def is_covered(self, session: S) -> bool:
        """Return whether another worker could take over the requests of one that stalls."""
        return True
