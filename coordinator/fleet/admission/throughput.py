"""Estimates how fast a queue moves, for Retry-After."""

import math
import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 10.0
_LONGEST_S = 60
"""Clients take longer waits for an error."""


class ThroughputEstimate:
    """Counts the sequences started in a sliding window."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._starts: deque[tuple[float, int]] = deque()
        self._total = 0

    def started(self, sequences: int) -> None:
        """Count sequences that started."""
        self._starts.append((self._clock(), sequences))
        self._total += sequences
        self._drop_old()

    def wait_s(self, sequences: int) -> int:
        """Return the whole seconds until a number of sequences will have started, from 1 to 60."""
        self._drop_old()
        if not self._total:
            return int(_WINDOW_S)  # nothing started in the window: it may take as long again
        elapsed = max(1.0, self._clock() - self._starts[0][0])
        return min(_LONGEST_S, max(1, math.ceil(sequences * elapsed / self._total)))

    def _drop_old(self) -> None:
        old = self._clock() - _WINDOW_S
        while self._starts and self._starts[0][0] < old:
            self._total -= self._starts.popleft()[1]
