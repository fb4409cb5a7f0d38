"""A bound of the queue that tenants share: whether one more request is within it, and which is refused instead."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.admission.queued_request import QueuedRequest
from tokenwire.coordinator.fleet.request_handle import Placement


@dataclass(slots=True)
class _Part:
    """What one tenant takes of a bound."""

    weight: int
    size: int = 0
    requests: int = 0
    refusable: OrderedDict[QueuedRequest, None] = field(default_factory=OrderedDict)
    """Its requests that may still be refused, in order of arrival."""


class FairBound:
    """A bound on the total size of queued requests, which is shared max-min fairly.

    Each tenant has a share by its weight. What one does not use of it, others may. A tenant that takes less than its
    share is therefore admitted although the bound is reached; then others take more, and one of their requests goes.
    """

    def __init__(self, measure: Callable[[QueuedRequest], int]) -> None:
        self.total = 0
        """The size of all requests."""
        self._measure = measure
        self._parts: dict[str, _Part] = {}
        """By tenant; without empty ones."""

    def add(self, entry: QueuedRequest) -> None:
        """Add a request."""
        placement = entry.placement
        part = self._parts.setdefault(placement.tenant, _Part(placement.weight))
        part.weight = placement.weight
        part.requests += 1
        if entry.may_be_refused:
            part.refusable[entry] = None
        self._grow(part, self._measure(entry))

    def remove(self, entry: QueuedRequest) -> None:
        """Remove a request."""
        part = self._parts[entry.placement.tenant]
        part.requests -= 1
        part.refusable.pop(entry, None)
        self._grow(part, -self._measure(entry))
        assert part.size >= 0, "more left the queue than was in it"
        if not part.requests:
            assert not part.size, "nobody waits in what is left of the queue"
            del self._parts[entry.placement.tenant]

    def _grow(self, part: _Part, size: int) -> None:
        part.size += size
        self.total += size

    def size_of(self, tenant: str) -> int:
        """Return the size of a tenant's requests."""
        return self._parts[tenant].size

    def fair_total(self, placement: Placement, size: int) -> int:
        """Return the total with a tenant's next request of a size, if nobody had more than this tenant would have.

        That is also how much the workers start at fair shares until they start this request.
        """
        part, weight = self._parts.get(placement.tenant), placement.weight
        own = size + (0 if part is None else part.size)
        # Sizes are compared by products, in whole numbers.
        others = sum(min(each.size * weight, own * each.weight) for each in self._parts.values() if each is not part)
        return own + -(-others // weight)

    def admits(self, placement: Placement, size: int, limit: int) -> bool:
        """Return whether a tenant's next request of a size is within the bound, or would be if others kept to shares.

        One that is larger than the whole bound is admitted when there is no other: else it never would be.
        """
        return not self.total or self.fair_total(placement, size) <= limit

    def to_refuse(self, placement: Placement, limit: int) -> QueuedRequest | None:
        """Return the request to refuse for one of a tenant that was admitted: the newest of who takes most, if needed.

        Requests that were begun, resumed or joined are never refused: then the bound is exceeded.
        """
        if self.total <= limit:
            return None
        own = self._parts[placement.tenant]
        larger = [each for each in self._parts.values() if each.refusable and _is_larger(each, own)]
        largest = max(larger, key=lambda each: each.size / each.weight, default=None)
        return None if largest is None else next(reversed(largest.refusable))


def _is_larger(part: _Part, other: _Part) -> bool:
    return part.size * other.weight > other.size * part.weight
