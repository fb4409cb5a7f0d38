"""How much of one session is stored: what goes beyond is dropped, wherever its sessions are kept."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

log = logging.getLogger(__name__)

_WARN_S = 60.0
"""Between two of these warnings."""
RESERVE_BYTES = 2**20
"""Beyond what turns may take of a session, for its rewards and metadata: about ten thousand rewards."""


class StoredEvent(NamedTuple):
    """An event as it is stored."""

    contents: bytes
    takes_reserve: bool = False
    """Whether it is a reward or metadata, which a session that is full still takes."""


class SessionLimit:
    """The most bytes that one session may have, by which its readers' memory is bounded."""

    def __init__(self, most_bytes: float = math.inf, clock: Callable[[], float] = time.monotonic) -> None:
        """`most_bytes`: of it until turns are dropped."""
        self._most_bytes = most_bytes
        self.most_with_reserve = most_bytes + RESERVE_BYTES
        """Of it until rewards and metadata are dropped too."""
        self._clock = clock
        self._warn_at = -math.inf
        self.dropped = 0
        """How many events were."""

    def fitting(self, session_id: str, size: int, events: Sequence[StoredEvent]) -> list[bytes]:
        """Return the events that fit into a session that has this size; the others are dropped, and the log says so."""
        fitting = []
        for event in events:
            most = self.most_with_reserve if event.takes_reserve else self._most_bytes
            if size + len(event.contents) <= most:
                fitting.append(event.contents)
                size += len(event.contents)
        if len(fitting) < len(events):
            self.dropped += len(events) - len(fitting)
            self._warn(session_id)
        return fitting

    def _warn(self, session_id: str) -> None:
        now = self._clock()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_S
            log.warning(
                "session %.100r has reached --trajectories-session-mb: later turns are not stored; events dropped "
                "of such sessions since the start: %d",
                session_id,
                self.dropped,
            )
