"""The order of a model's queued requests: resumed ones first, then by priority, then fair among tenants."""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from tokenwire.coordinator.fleet.admission.fair_bound import FairBound
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.protocol.model_revision import ModelRevision

_QueueOrder = tuple[bool, int, float, int]
"""The order of a request in the queue: whether it is new, its priority, its tenant's start tag, its arrival."""


class _Shares:
    """The shares of tenants in what requests of one priority get: start-time fair queueing.

    The start tag of a tenant is the virtual time at which all that it has started would be finished. The lowest goes
    first, so tenants that wait get shares by their weights, whatever they did before.
    """

    def __init__(self) -> None:
        self._virtual_time = 0.0
        self._start_tags: dict[str, float] = {}
        self._waiting: Counter[str] = Counter()
        """Queued requests by tenant, without zeros."""

    def __bool__(self) -> bool:
        """Return whether requests are queued."""
        return bool(self._waiting)

    def start_tag(self, tenant: str) -> float:
        """Return the start tag of a tenant with queued requests."""
        return self._start_tags[tenant]

    def add(self, tenant: str) -> None:
        """Add a queued request."""
        if tenant not in self._waiting:
            self._start_tags[tenant] = max(self._virtual_time, self._start_tags.get(tenant, 0.0))
        self._waiting[tenant] += 1

    def start(self, tenant: str, work: float) -> None:
        """Count work that starts, relative to its tenant's weight."""
        self._virtual_time = max(self._virtual_time, self._start_tags[tenant])
        self._start_tags[tenant] += work

    def remove(self, tenant: str) -> None:
        """Remove a queued request."""
        self._waiting[tenant] -= 1
        assert self._waiting[tenant] >= 0, "a request left the queue twice"
        if not self._waiting[tenant]:
            del self._waiting[tenant]


_Group = tuple[int, ModelRevision | None]
"""Requests that the same workers may take: those with an adapter and of a revision."""
_Lane = tuple[bool, int, str]
"""The queued requests of one group that go in order of arrival: whether they are new, priority and tenant."""


class FairQueue:
    """The queued requests of one model.

    Tenants of one priority get shares of the work by their weights. Each adapter and revision has its own lanes, because
    not every worker has it.
    """

    def __init__(self) -> None:
        self.places = FairBound(lambda entry: entry.sequences)
        """Queued sequences, which are bounded."""
        self.requests = 0
        self._lanes: dict[_Group, dict[_Lane, OrderedDict[QueuedRequest, None]]] = {}
        """By group; without empty ones."""
        self._shares: dict[int, _Shares] = {}
        """By priority, while new requests of it are queued."""
        self._arrivals = itertools.count()

    def add(self, entry: QueuedRequest) -> None:
        """Enqueue a request."""
        lane = _lane_of(entry)
        self._lanes.setdefault(_group_of(entry), {}).setdefault(lane, OrderedDict())[entry] = None
        entry.arrival = next(self._arrivals)
        is_new, priority, tenant = lane
        if is_new:
            self._shares.setdefault(priority, _Shares()).add(tenant)
        self.requests += 1
        self.places.add(entry)

    def start(self, entry: QueuedRequest, part: PartHandle) -> None:
        """Count a part of a request as its tenant's work; the rest stays where it is."""
        is_new, priority, tenant = _lane_of(entry)
        if is_new:  # a resumed request counted when it was first started
            self._shares[priority].start(tenant, entry.cost(len(part.listeners)))
        self.places.remove(entry)
        entry.begin(part)
        self.places.add(entry)

    def remove(self, entry: QueuedRequest) -> None:
        """Remove a queued request."""
        entry.queued = False
        group, lane = _group_of(entry), _lane_of(entry)
        lanes = self._lanes[group]
        del lanes[lane][entry]
        if not lanes[lane]:
            del lanes[lane]
        if not lanes:
            del self._lanes[group]
        is_new, priority, tenant = lane
        if is_new:
            self._shares[priority].remove(tenant)
            if not self._shares[priority]:
                del self._shares[priority]
        self.requests -= 1
        self.places.remove(entry)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests, in no particular order."""
        return (entry for lanes in self._lanes.values() for lane in lanes.values() for entry in lane)

    def waits(self, adapter_id: int, revision: ModelRevision | None = None) -> bool:
        """Return whether requests are queued that workers with an adapter and a revision may take."""
        return any(adapter_id == adapter and _overlap(revision, other) for adapter, other in self._lanes)

    @property
    def is_divided(self) -> bool:
        """Whether not all of its requests wait for the same workers."""
        return len(self._lanes) > 1

    def heads(self) -> list[QueuedRequest]:
        """Return the first request of each adapter and revision, in order."""
        return [entry for _, entry in sorted(map(self._first, self._lanes.values()))]

    def _first(self, lanes: Mapping[_Lane, Iterable[QueuedRequest]]) -> tuple[_QueueOrder, QueuedRequest]:
        """Return the first of a group's requests, after its order, which no two requests have alike."""
        return min((self._order(lane, first := next(iter(entries))), first) for lane, entries in lanes.items())

    def _order(self, lane: _Lane, first: QueuedRequest) -> _QueueOrder:
        is_new, priority, tenant = lane
        start_tag = self._shares[priority].start_tag(tenant) if is_new else 0.0
        return is_new, priority, start_tag, first.arrival


def _group_of(entry: QueuedRequest) -> _Group:
    return entry.submission.lora.id, entry.placement.revision


def _overlap(one: ModelRevision | None, other: ModelRevision | None) -> bool:
    return one is None or other is None or one.accepts(other)


def _lane_of(entry: QueuedRequest) -> _Lane:
    return not entry.placement.resumed, entry.submission.priority, entry.placement.tenant
