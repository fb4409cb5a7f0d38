"""What a tenant gets that begins to wait while others wait: no more than they, whatever it left to them before."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

Place = tuple[int, str]
"""A priority and a tenant."""


@dataclass(frozen=True, slots=True)
class _Start:
    """The last start of a tenant."""

    number: int
    work: float
    """What it had got until then for certain: what counts in advance may return."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """Since when a tenant waits."""

    number: int
    work: float
    """What it had got by then."""
    starts: Mapping[str, _Start]
    """Of all tenants until then."""


class Comebacks:
    """Judges starts of tenants that began to wait after those that they are served before.

    A tenant that comes back is to be where the one is that was next at that moment: behind nobody's last start. A rival
    is ahead of that by what it has got since its own last start, the request included. If it began to wait after that
    start, it may be less far ahead: by what it has got since it waits.
    """

    def __init__(self) -> None:
        self._waits: dict[Place, _Wait] = {}
        self._starts: dict[Place, _Start] = {}
        self._numbers = itertools.count()

    def forget(self, priority: int) -> None:
        """Begin anew: nobody waits with requests of a priority."""
        self._waits = {place: wait for place, wait in self._waits.items() if place[0] != priority}
        self._starts = {place: start for place, start in self._starts.items() if place[0] != priority}

    def on_wait(self, place: Place, work: float) -> None:
        """Take that a tenant begins to wait, and what it has got."""
        starts = {tenant: start for (priority, tenant), start in self._starts.items() if priority == place[0]}
        self._waits[place] = _Wait(next(self._numbers), work, starts)

    def on_start(self, place: Place, work: float, may_return: float = 0.0) -> None:
        """Take that a tenant starts a request, and what it has got until then, of which some may return."""
        self._starts[place] = _Start(next(self._numbers), work - may_return)

    def has_come_back(self, place: Place, rival: str) -> bool:
        """Return whether a tenant began to wait after a rival that waits had started requests."""
        own, other = self._waits[place], self._waits[place[0], rival]
        return own.number > other.number and rival in own.starts

    def excess(self, place: Place, work: float, rival: str, rivals_work: float) -> float:
        """Return by how much more a tenant that starts next has got than a rival that has waited for longer."""
        own, other = self._waits[place], self._waits[place[0], rival]
        if own.number < other.number:
            return -math.inf
        since, start = other.work, own.starts.get(rival)
        if start is not None:
            since = start.work if start.number > other.number else min(since, start.work)
        return work - own.work - (rivals_work - since)
