"""The shares of tenants in what requests of one priority get: start-time fair queueing.

The tag of a tenant is the virtual time at which all that it has started would be finished. The lowest goes first, so
tenants that wait get shares by their weights, whatever they did before the first of them had to wait. What each has
running then counts as if it had just been started, so whoever comes to workers that another fills goes first.
"""

from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS, WorkMeter
from tokenwire.process.pruned_dict import PrunedDict

_REMEMBERED = 1024
"""Tenants that neither wait nor run anything, before some are forgotten."""


class Shares:
    """Those of one priority."""

    def __init__(self) -> None:
        self._virtual_time = 0.0
        self._tenants = PrunedDict[str, TenantShare](self._is_used, _REMEMBERED)
        self.waiting = 0
        """Queued requests. Without any, no work takes anything from anybody."""

    def __bool__(self) -> bool:
        """Return whether requests are queued, or on workers."""
        return bool(self.waiting) or any(share.meters for share in self._tenants.values())

    def read(self) -> None:
        """Count what all that is on workers has done since the last call."""
        for share in self._tenants.values():
            share.read()

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
        return bool(share.waiting or share.meters or (self.waiting and share.tag > self._virtual_time))


@dataclass(eq=False, slots=True)
class TenantShare:
    """What counts for one tenant."""

    shares: Shares
    tag: float
    weight: int = 1
    waiting: int = 0
    """Its queued requests."""
    meters: dict[WorkMeter, None] = field(default_factory=dict)
    """Of its requests that are on workers, in order."""

    def add(self) -> None:
        """Add a queued request."""
        shares = self.shares
        if not shares.waiting:
            shares._virtual_time = 0.0
            for each in shares._tenants.values():
                each.tag = REPLY_TOKENS * sum(meter.restart() for meter in each.meters) / each.weight
        elif not self.waiting:
            self.read()
            self.tag = max(shares._virtual_time, self.tag)
        shares.waiting += 1
        self.waiting += 1

    def remove(self) -> None:
        """Remove a queued request."""
        assert self.waiting > 0, "a request left the queue twice"
        self.shares.waiting -= 1
        self.waiting -= 1

    def start(self, tokens: int) -> None:
        """Count work that starts while somebody waits."""
        if self.waiting:
            self.shares._virtual_time = max(self.shares._virtual_time, self.tag)
        else:
            self.tag = max(self.shares._virtual_time, self.tag)
        self.tag += tokens / self.weight

    def read(self) -> None:
        """Count what its sequences have done since the last call."""
        for meter in self.meters:
            self.tag += meter.read() / self.weight

    def settle(self, meter: WorkMeter) -> None:
        """Count what sequences have done of which some have ended here, before they go on elsewhere."""
        self.tag += meter.read() / self.weight

    def end(self, meter: WorkMeter) -> None:
        """Count what sequences have done that have all ended."""
        if self.shares.waiting:
            self.tag += meter.read() / self.weight
        self.meters.pop(meter, None)
