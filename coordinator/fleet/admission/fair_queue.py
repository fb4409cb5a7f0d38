"""The order of a model's queued requests: resumed ones first, then by priority, then fair among tenants."""

import itertools
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator

from tokenwire.coordinator.fleet.admission.fair_bound import FairBound
from tokenwire.coordinator.fleet.admission.queued_request import PartHandle, QueuedRequest
from tokenwire.coordinator.fleet.admission.shares import Shares, TenantShare
from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.process.pruned_dict import PrunedDict
from tokenwire.protocol.model_revision import ModelRevision
from tokenwire.protocol.weight_limits import WeightLimits

_QueueOrder = tuple[bool, int, float, int]
"""The order of a request in the queue: whether it is new, its priority, its tenant's start tag, its arrival."""


_KEPT = 16
"""Priorities that nobody uses, before they are forgotten: clients choose them."""

_Group = tuple[int, ModelRevision | None, bool, str, frozenset[str], bool, frozenset[str], str, WeightLimits | None]
"""Requests that the same workers may take: those with an adapter, of a revision, begun: bound to just that one, and to
the noise of their seed; those that have what is needed; and those whose weights are new enough. Large ones that are
not placed yet wait for memory that others do not, and a tenant's that cannot be taken back for places it may keep."""
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
        lane = lanes.setdefault(entry.placement.tenant, OrderedDict())
        lane[entry] = None
        if entry.placement.preempted:
            lane.move_to_end(entry, last=False)

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

    def first(self, may_go: Callable[[QueuedRequest], bool]) -> tuple[_QueueOrder, QueuedRequest] | None:
        """Return the first request of the tenants whose first one may go, after its order, which no two requests have
        alike; None if there is none.
        """
        for of in self._classes:
            first = None
            for lane in self.lanes[of].values():
                entry = next(iter(lane))
                if may_go(entry):
                    tag = 0.0 if entry.share is None else entry.share.tag
                    order = *of, tag, entry.arrival
                    first = (order, entry) if first is None else min(first, (order, entry))
            if first is not None:
                return first
        return None


class FairQueue:
    """The queued requests of one model.

    Tenants of one priority get shares of the work by their weights. Each adapter and revision has a queue of its own,
    because not every worker has it, and so have replies that only workers of their revision may continue, and requests
    that need what some workers lack. To find what is next takes a time that grows with the tenants, and with these, not
    with the requests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.places = FairBound(lambda entry: entry.sequences)
        """Queued sequences, which are bounded."""
        self.requests = 0
        self._groups: dict[_Group, _GroupQueue] = {}
        """Without empty ones."""
        self.shares = PrunedDict[int, Shares](bool, _KEPT)
        """By priority, while requests of it are queued or run."""
        self._arrivals = itertools.count()

    def add(self, entry: QueuedRequest) -> None:
        """Enqueue a request."""
        arrival = next(self._arrivals)
        entry.arrival = -arrival if entry.placement.preempted else arrival  # before others of its tenant, in all groups
        self._groups.setdefault(_group_of(entry), _GroupQueue()).add(entry)
        if entry.share is not None:
            entry.share.add(entry.sequences)
        entry.queued = True
        self.requests += 1
        self.places.add(entry)

    def start(self, entry: QueuedRequest, part: PartHandle) -> None:
        """Count a part of a request, queued or not, as its tenant's work; the rest stays where it is."""
        share = entry.share
        if share is not None and (share.shares.waiting or share.shares.period):
            share.start(entry.tokens(len(part.listeners)))
        if entry.queued:
            self.places.remove(entry)
            if share is not None:
                share.sequences -= len(part.listeners)
        entry.begin(part)
        if entry.queued:
            self.places.add(entry)

    def share_of(self, placement: Placement, priority: int) -> TenantShare | None:
        """Return the share that a request is of; None if it is resumed."""
        if placement.resumed:
            return None
        shares = self.shares.get(priority)
        if shares is None:
            shares = self.shares[priority] = Shares(self._clock)
        return shares.of(placement.tenant, placement.weight)

    def read_work(self) -> None:
        """Count what is on workers, so that shares are up to date."""
        for shares in self.shares.values():
            shares.read()

    def remove(self, entry: QueuedRequest) -> None:
        """Remove a queued request."""
        entry.queued = False
        group = _group_of(entry)
        self._groups[group].remove(entry)
        if not self._groups[group].lanes:
            del self._groups[group]
        if entry.share is not None:
            entry.share.remove(entry.sequences)
        self.requests -= 1
        self.places.remove(entry)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Yield the queued requests, in no particular order."""
        classes = (lanes for group in self._groups.values() for lanes in group.lanes.values())
        return (entry for lanes in classes for lane in lanes.values() for entry in lane)

    def waits(self, adapter_id: int, revision: ModelRevision | None = None) -> bool:
        """Return whether requests are queued that workers with an adapter and a revision may take.

        Not those that wait for newer weights, and so not for capacity.
        """
        groups = self._groups
        return bool(groups) and any(
            adapter_id == adapter and limits is None and _overlap(revision, of) for adapter, of, *_, limits in groups
        )

    def is_behind(self, entry: QueuedRequest, tenant: str) -> bool:
        """Return whether a queued request would go before one of another tenant, by their shares as last read."""
        is_new, priority = _class_of(entry)
        return not is_new or self.shares[priority].is_behind(entry.placement.tenant, tenant)

    @property
    def is_divided(self) -> bool:
        """Whether not all of its requests wait for the same workers."""
        return len(self._groups) > 1

    def heads(self, may_go: Callable[[QueuedRequest], bool] = lambda entry: True) -> list[QueuedRequest]:
        """Return the first request of each group that may go, in order, by the shares as last read.

        may_go: without it, others of its tenant do not go either, but those of others do.
        """
        firsts = []
        for group in self._groups.values():
            first = group.first(may_go)
            if first is not None:
                firsts.append(first)
        return [entry for _, entry in sorted(firsts)]


def _group_of(entry: QueuedRequest) -> _Group:
    placement = entry.placement
    workers = entry.submission.lora.id, placement.revision, placement.begun
    needs = placement.seeded_noise, entry.needs, entry.waits_for_memory, placement.failed_at
    return *workers, *needs, placement.tenant if placement.keeps_place else "", placement.weights


def _overlap(one: ModelRevision | None, other: ModelRevision | None) -> bool:
    return one is None or other is None or one.accepts(other)


def _class_of(entry: QueuedRequest) -> _Class:
    return not entry.placement.resumed, entry.submission.priority
