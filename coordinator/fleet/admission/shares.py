"""The shares of tenants in what requests of one priority get: start-time fair queueing.

The tag of a tenant is the virtual time at which all that it has started would be finished. The lowest goes first, so
tenants that wait get shares by their weights, whatever they did before the first of them had to wait. What each has
running then counts as if it had just been started, so whoever comes to workers that another fills goes first.
"""

from dataclasses import dataclass

from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS
from tokenwire.process.pruned_dict import PrunedDict

_REMEMBERED = 1024
"""Tenants that neither wait nor run anything, before some are forgotten."""


class Shares:
    """Those of one priority."""

    def __init__(self) -> None:
        self._virtual_time = 0.0
        self._tenants = PrunedDict[str, TenantShare](self._is_used, _REMEMBERED)
        self._waiting = 0
        """Queued requests."""
        self._running = 0
        """Metered sequences that run."""

    def __bool__(self) -> bool:
        """Return whether requests are queued, or sequences run."""
        return bool(self._waiting or self._running)

    def of(self, tenant: str, weight: int) -> "TenantShare":
        """Return a tenant's share, which counts what its sequences do."""
        share = self._tenants.get(tenant)
        if share is None:
            share = self._tenants[tenant] = TenantShare(self, self._virtual_time)
        share.weight = weight
        return share

    def tag(self, tenant: str) -> float:
        """Return the tag of a tenant that waits."""
        return self._tenants[tenant].tag

    def is_behind(self, tenant: str, other: str) -> bool:
        """Return whether a tenant that waits has had less than another one."""
        share = self._tenants.get(other)
        return share is not None and self.tag(tenant) < max(self._virtual_time, share.tag)

    def _is_used(self, share: "TenantShare") -> bool:
        """Return whether a tenant waits, runs anything, or is ahead of others: that counts while somebody waits."""
        return bool(share.waiting or share.running or (self._waiting and share.tag > self._virtual_time))


@dataclass(slots=True)
class TenantShare:
    """What counts for one tenant."""

    shares: Shares
    tag: float
    weight: int = 1
    waiting: int = 0
    """Its queued requests."""
    running: int = 0
    """Its metered sequences that run."""

    def add(self) -> None:
        """Add a queued request."""
        shares = self.shares
        if not shares._waiting:
            shares._virtual_time = 0.0
            for each in shares._tenants.values():
                each.tag = REPLY_TOKENS * each.running / each.weight
        elif not self.waiting:
            self.tag = max(shares._virtual_time, self.tag)
        shares._waiting += 1
        self.waiting += 1

    def remove(self) -> None:
        """Remove a queued request."""
        assert self.waiting > 0, "a request left the queue twice"
        self.shares._waiting -= 1
        self.waiting -= 1

    def start(self, tokens: int) -> None:
        """Count work that starts. As long as nobody waits, it takes nothing from anybody."""
        if self.waiting:
            self.shares._virtual_time = max(self.shares._virtual_time, self.tag)
        else:
            self.tag = max(self.shares._virtual_time, self.tag)
        self.charge(tokens)

    def charge(self, tokens: float) -> None:
        """Count more work of what was started, or take back what was not needed."""
        self.tag += tokens / self.weight

    def begin_sequence(self) -> None:
        """Count one more that runs."""
        self.shares._running += 1
        self.running += 1

    def end_sequence(self) -> None:
        """Count one less."""
        self.shares._running -= 1
        self.running -= 1
        assert self.running >= 0, "a sequence ended twice"
