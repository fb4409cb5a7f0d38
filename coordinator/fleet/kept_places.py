"""The places at a worker of replies that cannot be taken back: a tenant leaves some of them to others."""

from typing import Protocol

_LEFT_SHARE = 8
"""Of the places that others do not keep, one of so many is left."""


class KeptPart(Protocol):
    """The sequences that were sent to a worker together; see PlacedRequest."""

    def running(self) -> list[int]:
        """Return the places of those that still run."""


class KeptPlaces:
    """Those of one worker.

    A reply that goes on elsewhere makes room for a tenant that waits, and one that cannot does not. Without a bound,
    whoever comes first with such replies has the worker until the longest of them ends.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[str, KeptPart]] = []
        """Each with its tenant, also some that have ended."""

    def add(self, tenant: str, part: KeptPart) -> None:
        """Count a part of a tenant's request, until it has ended."""
        self._parts.append((tenant, part))

    def room(self, tenant: str, capacity: int) -> int:
        """Return how many more places a tenant may keep of those of a worker; zero or less: none.

        One is never left to others if it is the last one that is not kept.
        """
        counted = [(each, part, len(part.running())) for each, part in self._parts]
        self._parts = [(each, part) for each, part, count in counted if count]
        own = sum(count for each, _, count in counted if each == tenant)
        available = capacity - sum(count for *_, count in counted) + own
        return max(1, available - max(1, available // _LEFT_SHARE)) - own
