"""Keeps a worker that is lost again and again out of traffic, for longer each time, and lets it begin with little."""

import time
from collections.abc import Callable

_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 30.0
_FACTOR = 4.0
_FORGET_S = 60.0
_STALLED = 3
"""An engine that hangs is there at once when it is asked again: it counts like so many losses in a row."""


class CircuitBreaker:
    """Counts the losses of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.half_open = False
        """Whether the worker was lost and has not made a token since."""
        self._clock = clock
        self._losses = 0
        self._lost_at = 0.0

    def lost(self, stalled: bool = False) -> float:
        """Take note of a loss; returns for how many seconds to stay away."""
        now = self._clock()
        self._losses = self._losses + 1 if self._losses and now - self._lost_at < _FORGET_S else 1
        if stalled:
            self._losses = max(self._losses, _STALLED)
        self._lost_at = now
        self.half_open = True
        return min(_FIRST_PAUSE_S * _FACTOR ** (self._losses - 1), _LAST_PAUSE_S)

    def record_success(self) -> None:
        """Hear that the worker makes tokens."""
        self.half_open = False
