"""How much of one session is stored: what goes beyond is dropped, wherever its sessions are kept."""

import logging
import math
import time
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

_WARN_S = 60.0
"""Between two of these warnings."""


class SessionLimit:
    """The most bytes that one session may have, by which its readers' memory is bounded."""

    def __init__(self, most_bytes: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._warn_at = -math.inf
        self.dropped = 0
        """How many events were."""

    def fitting(self, session_id: str, size: int, events: Sequence[bytes]) -> list[bytes]:
        """Return the events that fit into a session that has this size; the others are dropped, and the log says so."""
        fitting = []
        for event in events:
            if size + len(event) <= self._most_bytes:
                fitting.append(event)
                size += len(event)
        if len(fitting) < len(events):
            self.dropped += len(events) - len(fitting)
            self._warn(session_id)
        return fitting

    def _warn(self, session_id: str) -> None:
        now = self._clock()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_S
            log.warning(
                "session %.100r has reached --trajectories-session-mb: what follows is not stored; events dropped "
                "of such sessions since the start: %d",
                session_id,
                self.dropped,
            )
