"""The shares of tenants in what requests of one priority get: fair queueing by virtual time.

The tag of a tenant is the virtual time at which all that it has started would be finished. The lowest goes first, so
tenants that wait get shares by their weights, whatever they did before the first of them had to wait. What each has
running then counts as if it had just been started, so whoever comes to workers that another fills goes first.

Time goes on by what is done, divided among those that wait or run something, and is at least what the next one of
those that wait has had (WF2Q+, Bennett and Zhang 1996). So whoever comes has missed nothing and owes nothing, and
goes before nobody who has waited for a turn of all.

Where processes share a store, tags are of all of them while requests wait in any: the store has the tags, and each
process reports the work that it has given. One that counts in a period is told who waits elsewhere.
"""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from tokenwire.coordinator.fleet.admission.rivals import Rival, Rivals
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport, TenantReport
from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS, WorkMeter
from tokenwire.process.pruned_dict import PrunedDict

_REMEMBERED = 1024
"""Tenants that neither wait nor run anything, before some are forgotten."""
_MOST_REPORTED = 256
"""Tenants in one report; others are in a later one."""
_NAME_BYTES = 16


class Shares:
    """Those of one priority."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._virtual_time = 0.0
        self.progress = 0.0
        """Tokens that all have done since the last call of `read`."""
        self._tenants = PrunedDict[str, TenantShare](self._is_used, _REMEMBERED)
        self.waiting = 0
        """Queued requests. Without any, here or elsewhere, no work takes anything from anybody."""
        self.period = ""
        """The time of waiting, here or elsewhere, of which a store has the tags; empty: none."""
        self.rivals = Rivals(clock)
        """Tenants that wait in other processes."""

    def __bool__(self) -> bool:
        """Return whether requests are queued, or on workers."""
        return bool(self.waiting) or any(share.meters for share in self._tenants.values())

    @property
    def sequences(self) -> int:
        """Those that are queued."""
        return sum(share.sequences for share in self._tenants.values())

    def read(self) -> None:
        """Count what all that is on workers has done since the last call."""
        for share in self._tenants.values():
            share.read()
        active = [share for share in self._tenants.values() if share.waiting or share.meters]
        if active:
            self._virtual_time += max(0.0, self.progress) / sum(share.weight for share in active)
        self.progress = 0.0
        if waiting := [share for share in active if share.waiting]:
            self._virtual_time = max(self._virtual_time, min(waiting, key=_tag).done)

    def of(self, tenant: str, weight: int) -> "TenantShare":
        """Return a tenant's share."""
        share = self._tenants.get(tenant)
        if share is None:
            share = self._tenants[tenant] = TenantShare(self, self._virtual_time)
        share.weight = weight
        return share

    def is_behind(self, tenant: str, other: str) -> bool:
        """Return whether a tenant that waits has had less than another one."""
        share = self._tenants.get(other)
        return share is not None and self._tenants[tenant].tag < max(self._virtual_time, share.tag)

    def _is_used(self, share: "TenantShare") -> bool:
        """Return whether a tenant waits, has workers, or is ahead of others: that counts while somebody waits."""
        counts = self.waiting or self.period
        return bool(share.waiting or share.meters or (counts and (share.tag > self._virtual_time or share.unreported)))

    # What is shared with other processes.

    def report(self, name: str) -> ShareReport:
        """Return what the store is to count: what was given since the last report, and who waits."""
        begins = not self.period
        if not begins:
            self.read()
        found = (
            (not share.waiting, share.tag, tenant)
            for tenant, share in self._tenants.items()
            if share.waiting or share.meters or share.unreported
        )
        reported = [tenant for *_, tenant in heapq.nsmallest(_MOST_REPORTED, found)]
        tenants = {shared_name(tenant): self._tenants[tenant].report(begins) for tenant in reported}
        return ShareReport(name, self.period, tenants)

    def adopt(self, told: SharedTags, urgent: int = 0) -> None:
        """Count on from what all processes have given; `urgent`: sequences of more urgent priorities elsewhere."""
        self.period, self._virtual_time = told.period, told.virtual_time
        for tenant, share in self._tenants.items():
            share.tag = told.tags.get(shared_name(tenant), told.virtual_time) + share.unreported
        waiting = told.waiting.items()
        rivals = (Rival(told.tags.get(name, told.virtual_time), count) for name, count in waiting)
        self.rivals.set(rivals, urgent)

    def leave(self, urgent: int = 0) -> None:
        """Count by itself, if requests wait here: none of this priority wait elsewhere, or that is not known."""
        self.period = ""
        self.rivals.set((), urgent)


@dataclass(eq=False, slots=True)
class TenantShare:
    """What counts for one tenant."""

    shares: Shares
    tag: float
    weight: int = 1
    waiting: int = 0
    """Its queued requests."""
    sequences: int = 0
    """Of these, what is queued."""
    meters: dict[WorkMeter, None] = field(default_factory=dict)
    """Of its requests that are on workers, in order."""
    unreported: float = 0.0
    """What it was given since the last report, in virtual time."""
    ahead: float = 0.0
    """Tokens that are counted in advance, as last read."""

    @property
    def done(self) -> float:
        """Its tag without what is counted in advance: time goes no further, since some of that is taken back."""
        return self.tag - self.ahead / self.weight

    def add(self, sequences: int = 1) -> None:
        """Add a queued request."""
        shares = self.shares
        if not (shares.waiting or shares.period):
            shares._virtual_time = 0.0
            for each in shares._tenants.values():
                each.tag = each.in_advance()
            shares.progress = 0.0
        elif not self.waiting:
            self.read()
            self.tag = max(shares._virtual_time, self.tag)
        shares.waiting += 1
        self.waiting += 1
        self.sequences += sequences

    def remove(self, sequences: int = 1) -> None:
        """Remove a queued request, with what is still queued of it."""
        assert self.waiting > 0, "a request left the queue twice"
        self.shares.waiting -= 1
        self.waiting -= 1
        self.sequences -= sequences

    def start(self, tokens: int) -> None:
        """Count work that starts while somebody waits."""
        if self.waiting:
            self.shares._virtual_time = max(self.shares._virtual_time, self.done)
        else:
            self.tag = max(self.shares._virtual_time, self.tag)
        self._count(tokens)
        self._set_ahead(self.ahead + tokens)

    def read(self) -> None:
        """Count what its sequences have done since the last call."""
        if tokens := sum(meter.read() for meter in self.meters):
            self._count(tokens)
        self._set_ahead(sum(meter.ahead for meter in self.meters))

    def settle(self, meter: WorkMeter) -> None:
        """Count what sequences have done of which some have ended here, before they go on elsewhere."""
        self._count(meter.read())

    def end(self, meter: WorkMeter) -> None:
        """Count what sequences have done that have all ended."""
        if self.shares.waiting or self.shares.period:
            self._count(meter.read())
        self.meters.pop(meter, None)

    def _count(self, tokens: float) -> None:
        work = tokens / self.weight
        self.tag += work
        self.unreported += work
        self.shares.progress += tokens

    def _set_ahead(self, tokens: float) -> None:
        self.shares.progress += self.ahead - tokens
        self.ahead = tokens

    def in_advance(self) -> float:
        """Leave what was done so far, and return what counts of what it has running."""
        self.ahead = REPLY_TOKENS * sum(meter.restart() for meter in self.meters)
        return self.ahead / self.weight

    def report(self, begins: bool) -> TenantReport:
        """Return what it was given since the last report, and begin anew."""
        work, self.unreported = self.unreported, 0.0
        in_advance = self.in_advance() if begins else 0.0
        return TenantReport(work, in_advance, self.sequences, self.ahead / self.weight, self.weight)

    def room(self, free: int, wanted: int, tokens: int) -> int:
        """Return how many of so many free places its sequences may take, which count so many tokens each."""
        tag = self.tag if self.waiting else max(self.shares._virtual_time, self.tag)
        return self.shares.rivals.room(free, wanted, tag, tokens / self.weight)


def _tag(share: TenantShare) -> float:
    return share.tag


@lru_cache(4096)
def shared_name(name: str) -> str:
    """Return what a tenant or a model is called in a store, from which its name cannot be read."""
    return blake2b(name.encode(), digest_size=_NAME_BYTES).hexdigest()
