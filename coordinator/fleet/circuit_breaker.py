"""Reconnection backoff after losses, and the half-open state in which a worker that returned gets little traffic."""

import random
import time
from collections.abc import Callable

_FIRST_BACKOFF_S = 0.2
_MAX_RETRY_S = 5.0
"""Of a worker that cannot be connected to."""
_MAX_BACKOFF_S = 30.0
"""Of a worker that is lost repeatedly."""
_FACTOR = 4.0
_FORGET_S = 60.0
_FEW_DRAINS = 2
"""In a minute: a worker that is restarted may take its first sessions before it is gone."""
_STALL_LOSSES = 3
"""A worker with a hanging engine reconnects at once: a stall counts as this many consecutive losses."""


class CircuitBreaker:
    """Counts the consecutive losses of one worker, and its consecutive drains."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.half_open = False
        """Whether the worker was lost or ejected and has not generated a token since."""
        self._clock = clock
        self._losses = 0
        self._lost_at = 0.0
        self._drains = 0
        self._drained_at = 0.0
        self._backoff_s = _FIRST_BACKOFF_S

    def backoff_s(self) -> float:
        """Return the seconds until the next attempt to connect, with jitter."""
        return self._backoff_s * random.uniform(0.8, 1.2)  # noqa: S311 (spreads retries, no secret)

    def record_failure(self) -> None:
        """Record an attempt that did not connect."""
        self._backoff_s = min(self._backoff_s * 2, _MAX_RETRY_S)

    def record_drain(self) -> None:
        """Record the end of a session that the worker announced: one that does so again and again is as one lost."""
        now = self._clock()
        self._drains = self._drains + 1 if self._drains and now - self._drained_at < _FORGET_S else 1
        self._drained_at = now
        self.half_open = self.half_open or self._drains > _FEW_DRAINS
        self._backoff_s = _backoff_s(max(1, self._drains - _FEW_DRAINS + 1))

    def record_loss(self, stalled: bool = False) -> None:
        """Record a loss: the worker is half-open until it generates a token, and the backoff gets longer."""
        now = self._clock()
        self._losses = self._losses + 1 if self._losses and now - self._lost_at < _FORGET_S else 1
        if stalled:
            self._losses = max(self._losses, _STALL_LOSSES)
        self._lost_at = now
        self.half_open = True
        self._backoff_s = _backoff_s(self._losses)

    def record_ejection(self) -> None:
        """Record that the worker gets no new requests for a while: it is half-open when it is back."""
        self.half_open = True

    def record_success(self) -> None:
        """Record that the worker generates tokens."""
        self.half_open = False


def _backoff_s(times: int) -> float:
    """Return the backoff after something has happened so many times."""
    return min(_FIRST_BACKOFF_S * _FACTOR ** (times - 1), _MAX_BACKOFF_S)
