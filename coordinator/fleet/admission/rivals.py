"""Tenants that wait in other processes, and the places that are left for them on workers that all of them use.

Their tags are those of the last exchange. Until the next one, each place that is left for one is assumed to be taken,
so places are divided without an exchange for each.
"""

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil

_PATIENCE_S = 1.0
"""A place that nobody took for so long is not wanted: workers report their load twice a second."""
_LAPSE_S = 0.2
"""Places are looked at more often than this while requests wait for them."""


@dataclass(slots=True, order=True)
class Rival:
    """One that waits elsewhere."""

    tag: float
    sequences: int
    """That wait."""


class Rivals:
    """Those of one model and priority."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.exist = False
        """Whether there are any."""
        self._clock = clock
        self._urgent = 0
        """Sequences of more urgent priorities for which no place is left yet."""
        self._waiting: list[Rival] = []
        """Those for which no place is left yet, as a heap."""
        self._left = 0
        """Places for them, since they were last heard of."""
        self._looked_at = self._since = 0.0
        self._least = 0
        """Free places at a time since then: so many nobody took."""
        self._spare = 0
        """Of the time before, what is not used yet."""

    def set(self, rivals: Iterable[Rival], urgent: int = 0) -> None:
        """Replace them by what is known now; `urgent`: sequences that wait elsewhere with more urgent priorities."""
        self._waiting, self._urgent = [*rivals], urgent
        heapq.heapify(self._waiting)
        self.exist = bool(self._waiting or urgent)
        self._left = 0

    def room(self, free: int, wanted: int, tag: float, cost: float) -> int:
        """Return how many of the free places a tenant with a tag may take.

        `cost`: of each in virtual time. That of others is not known, and taken for the same.
        """
        self._look(free)
        taken = 0
        while taken < wanted:
            self._leave(free - taken, tag, cost)
            if self._left + taken >= free:
                break
            taken += 1
            tag += cost
        unwanted = min(self._spare, wanted, free)
        if unwanted > taken:
            self._spare -= unwanted - taken
            taken = unwanted
        return taken

    def _leave(self, free: int, tag: float, cost: float) -> None:
        """Leave places for what is more urgent, and for those that go before a tag, as far as there are any."""
        urgent = min(self._urgent, max(0, free - self._left))
        self._left += urgent
        self._urgent -= urgent
        while self._left < free and self._waiting and self._waiting[0].tag < tag:
            first = self._waiting[0]
            places = min(first.sequences, free - self._left, ceil((tag - first.tag) / cost))
            self._left += places
            if places == first.sequences:
                heapq.heappop(self._waiting)
            else:
                heapq.heapreplace(self._waiting, Rival(first.tag + places * cost, first.sequences - places))

    def _look(self, free: int) -> None:
        now = self._clock()
        if now - self._looked_at > _LAPSE_S:
            self._since, self._least, self._spare = now, free, 0
        self._looked_at = now
        self._least = min(self._least, free)
        if now - self._since >= _PATIENCE_S:
            self._since, self._least, self._spare = now, free, self._least
