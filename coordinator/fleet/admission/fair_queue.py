"""The order of a model's queued requests: resumed ones first, then by priority, then fair among tenants."""

import itertools
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from functools import partial

from tokenwire.coordinator.fleet.admission.fair_bound import FairBound
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.protocol.model_revision import ModelRevision

_QueueOrder = tuple[bool, int, float, int]
"""The order of a request in the queue: whether it is new, its priority, its tenant's start tag, its arrival."""


_REMEMBERED = 1024
"""Tenants that do not wait, before some are forgotten."""


class _Shares:
    """The shares of tenants in what requests of one priority get: start-time fair queueing.

    The start tag of a tenant is the virtual time at which all that it has started would be finished. The lowest goes
    first, so tenants that wait get shares by their weights, whatever they did before.
    """

    def __init__(self) -> None:
        self._virtual_time = 0.0
        self.start_tags: dict[str, float] = {}
        """By tenant: of those that wait, and of those that have got more than their share."""
        self._waiting: Counter[str] = Counter()
        """Queued requests by tenant, without zeros."""

    def __bool__(self) -> bool:
        """Return whether requests are queued."""
        return bool(self._waiting)

    def add(self, tenant: str) -> None:
        """Add a queued request."""
        if tenant not in self._waiting:
            self.start_tags[tenant] = max(self._virtual_time, self.start_tags.get(tenant, 0.0))
        self._waiting[tenant] += 1

    def start(self, tenant: str, work: float) -> None:
        """Count work that starts, relative to its tenant's weight."""
        self._virtual_time = max(self._virtual_time, self.start_tags[tenant])
        self.charge(tenant, work)

    def charge(self, tenant: str, work: float) -> None:
        """Count more work of what a tenant has started, or take back what it did not need."""
        if tenant in self.start_tags:
            self.start_tags[tenant] += work

    def remove(self, tenant: str) -> None:
        """Remove a queued request."""
        self._waiting[tenant] -= 1
        assert self._waiting[tenant] >= 0, "a request left the queue twice"
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            self._forget()

    def _forget(self) -> None:
        """Drop tenants that neither wait nor are ahead of others, once they are most: they may be any number."""
        if len(self.start_tags) > 2 * len(self._waiting) + _REMEMBERED:
            self.start_tags = {
                tenant: tag
                for tenant, tag in self.start_tags.items()
                if tenant in self._waiting or tag > self._virtual_time
            }


_Group = tuple[int, ModelRevision | None, bool]
"""Requests that the same workers may take: those with an adapter, of a revision, and begun: bound to just that one."""
_Class = tuple[bool, int]
"""What goes before shares: whether requests are new, and their priority."""


class _GroupQueue:
    """The queued requests of one group: by class, then by tenant, then in order of arrival."""

    def __init__(self) -> None:
        self._classes: list[_Class] = []
        """In order. There may be as many as requests, because clients choose their priorities."""
        self.lanes: dict[_Class, dict[str, OrderedDict[QueuedRequest, None]]] = {}
        """Without empty ones."""

    def add(self, entry: QueuedRequest) -> None:
        """Add a request."""
        lanes = self.lanes.get(of := _class_of(entry))
        if lanes is None:
            lanes = self.lanes[of] = {}
            insort(self._classes, of)
        lanes.setdefault(entry.placement.tenant, OrderedDict())[entry] = None

    def remove(self, entry: QueuedRequest) -> None:
        """Remove a request."""
        of, tenant = _class_of(entry), entry.placement.tenant
        lanes = self.lanes[of]
        del lanes[tenant][entry]
        if not lanes[tenant]:
            del lanes[tenant]
        if not lanes:
            del self.lanes[of]
            del self._classes[bisect_left(self._classes, of)]

    def first(self, shares: Mapping[int, _Shares]) -> tuple[_QueueOrder, QueuedRequest]:
        """Return the first request, after its order, which no two requests have alike."""
        is_new, priority = of = self._classes[0]
        tags = shares[priority].start_tags if is_new else {}
        firsts = ((tenant, next(iter(lane))) for tenant, lane in self.lanes[of].items())
        return min(((is_new, priority, tags.get(tenant, 0.0), entry.arrival), entry) for tenant, entry in firsts)


class FairQueue:
    """The queued requests of one model.

    Tenants of one priority get shares of the work by their weights. Each adapter and revision has a queue of its own,
    because not every worker has it, and so have replies that only workers of their revision may continue. To find what
    is next takes a time that grows with the tenants, adapters and revisions, not with the requests.
    """

    def __init__(self) -> None:
        self.places = FairBound(lambda entry: entry.sequences)
        """Queued sequences, which are bounded."""
        self.requests = 0
        self._groups: dict[_Group, _GroupQueue] = {}
        """Without empty ones."""
        self._shares: dict[int, _Shares] = {}
        """By priority, while new requests of it are queued."""
        self._arrivals = itertools.count()

    def add(self, entry: QueuedRequest) -> None:
        """Enqueue a request."""
        entry.arrival = next(self._arrivals)
        self._groups.setdefault(_group_of(entry), _GroupQueue()).add(entry)
        is_new, priority = _class_of(entry)
        tenant = entry.placement.tenant
        if is_new:
            shares = self._shares.setdefault(priority, _Shares())
            shares.add(tenant)
            if tenant:  # without keys there is nobody to share with
                entry.count_work(partial(shares.charge, tenant))
        self.requests += 1
        self.places.add(entry)

    def start(self, entry: QueuedRequest, part: PartHandle) -> None:
        """Count a part of a request as its tenant's work; the rest stays where it is."""
        is_new, priority = _class_of(entry)
        if is_new:  # a resumed request counted when it was first started
            self._shares[priority].start(entry.placement.tenant, entry.cost(len(part.listeners)))
        self.places.remove(entry)
        entry.begin(part)
        self.places.add(entry)

    def remove(self, entry: QueuedRequest) -> None:
        """Remove a queued request."""
        entry.queued = False
        group = _group_of(entry)
        self._groups[group].remove(entry)
        if not self._groups[group].lanes:
            del self._groups[group]
        is_new, priority = _class_of(entry)
        if is_new:
            self._shares[priority].remove(entry.placement.tenant)
            if not self._shares[priority]:
                del self._shares[priority]
        self.requests -= 1
        self.places.remove(entry)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests, in no particular order."""
        classes = (lanes for group in self._groups.values() for lanes in group.lanes.values())
        return (entry for lanes in classes for lane in lanes.values() for entry in lane)

    def waits(self, adapter_id: int, revision: ModelRevision | None = None) -> bool:
        """Return whether requests are queued that workers with an adapter and a revision may take."""
        return any(adapter_id == adapter and _overlap(revision, other) for adapter, other, _ in self._groups)

    @property
    def is_divided(self) -> bool:
        """Whether not all of its requests wait for the same workers."""
        return len(self._groups) > 1

    def heads(self) -> list[QueuedRequest]:
        """Return the first request of each group, in order."""
        return [entry for _, entry in sorted(group.first(self._shares) for group in self._groups.values())]


def _group_of(entry: QueuedRequest) -> _Group:
    return entry.submission.lora.id, entry.placement.revision, entry.placement.begun


def _overlap(one: ModelRevision | None, other: ModelRevision | None) -> bool:
    return one is None or other is None or one.accepts(other)


def _class_of(entry: QueuedRequest) -> _Class:
    return not entry.placement.resumed, entry.submission.priority
