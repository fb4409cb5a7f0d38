"""Backs off from a worker that is lost repeatedly, and limits its traffic after it returns."""

import time
from collections.abc import Callable

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 30.0
_FACTOR = 4.0
_FORGET_S = 60.0
_STALL_LOSSES = 3
"""A worker with a hanging engine reconnects at once: a stall counts as so many consecutive losses."""


class CircuitBreaker:
    """Counts the consecutive losses of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.half_open = False
        """Whether the worker was lost and has not generated a token since."""
        self._clock = clock
        self._losses = 0
        self._lost_at = 0.0

    def lost(self, stalled: bool = False) -> float:
        """Record a loss and return the backoff in seconds."""
        now = self._clock()
        self._losses = self._losses + 1 if self._losses and now - self._lost_at < _FORGET_S else 1
        if stalled:
            self._losses = max(self._losses, _STALL_LOSSES)
        self._lost_at = now
        self.half_open = True
        return min(_FIRST_BACKOFF_S * _FACTOR ** (self._losses - 1), _MAX_BACKOFF_S)

    def record_success(self) -> None:
        """Record that the worker generates tokens."""
        self.half_open = False
