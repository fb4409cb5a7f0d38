"""The places at a worker of replies that cannot be taken back: a tenant leaves some of them to others."""

from collections import Counter
from collections.abc import Iterable

_LEFT_SHARE = 8
"""Of the places that others do not keep, one of so many is left."""


class KeptPlaces:
    """Those of one worker, by slot.

    A reply that goes on elsewhere makes room for a tenant that waits, and one that cannot does not. Without a bound,
    whoever comes first with such replies has the worker until the longest of them ends.
    """

    def __init__(self) -> None:
        self.tenants: dict[int, str] = {}
        """By slot."""
        self._counts = Counter[str]()
        """Of each tenant that keeps any."""

    def add(self, slots: Iterable[int], tenant: str) -> None:
        """Count a tenant's slots."""
        for slot in slots:
            self.tenants[slot] = tenant
            self._counts[tenant] += 1

    def remove(self, slot: int) -> None:
        """Count a slot no longer, if it is kept."""
        tenant = self.tenants.pop(slot, None)
        if tenant is not None:
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]

    def clear(self) -> None:
        """Count none."""
        self.tenants.clear()
        self._counts.clear()

    def room(self, tenant: str, capacity: int) -> int:
        """Return how many more places a tenant may keep of those of a worker; zero or less: none.

        One is never left to others if it is the last one that is not kept.
        """
        own = self._counts[tenant]
        available = capacity - len(self.tenants) + own
        return max(1, available - max(1, available // _LEFT_SHARE)) - own
