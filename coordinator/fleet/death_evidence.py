"""Whether a worker that dies says something about the requests that it had just started, or about itself."""

import time
from collections import deque
from collections.abc import Callable, Collection

from tokenwire.coordinator.fleet.submission import Submission

LEAST_SERVED = 4
"""Requests that a worker has served since it is connected, before its death is evidence."""
_WINDOW_S = 600.0
"""For how long a loss matters to those that come after it: as long as requests are rejected."""
_MOST_LOSSES = 64


class DeathEvidence:
    """What one worker served, and of what it was lost before: one that is lost with others each time fails for all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._served = 0
        self._losses: deque[tuple[float, frozenset[str | int]]] = deque(maxlen=_MOST_LOSSES)
        """When it was lost, and what identifies the requests that it had just started."""
        self._fails_for_all = False

    @property
    def counts(self) -> bool:
        """Whether the death of the worker is evidence against what it had just started."""
        return self._served >= LEAST_SERVED and not self._fails_for_all

    def on_connected(self) -> None:
        """Begin anew: it may be another process."""
        self._served, self._fails_for_all = 0, False

    def on_served(self) -> None:
        """Record a request that was served."""
        self._served += 1

    def on_lost(self, just_started: Collection[Submission]) -> None:
        """Record the loss of the worker with these requests, before its death is judged."""
        if not just_started:
            return
        started = frozenset(mark for each in just_started for mark in _marks(each))
        now = self._clock()
        earlier = [marks for when, marks in self._losses if now - when < _WINDOW_S]
        self._fails_for_all = any(not marks & started for marks in earlier)
        self._losses.append((now, started))


def _marks(submission: Submission) -> tuple[str | int, int]:
    """Return what a request has in common with itself when it is sent again: with tokens, or by its client."""
    return submission.request_id, hash(tuple(submission.prompt_token_ids))
