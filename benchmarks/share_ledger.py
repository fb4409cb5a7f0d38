"""What the store of shares counts, in this process and by a clock: for queues that share workers in virtual time."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.admission.redis_share_store import LIFE_S, MOST_TENANTS
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport, TenantReport


@dataclass(frozen=True, slots=True)
class _Process:
    """What one has reported last, by tenant."""

    at: float
    tenants: Mapping[str, TenantReport]

    @property
    def waiting(self) -> dict[str, int]:
        """What waits there."""
        return {tenant: each.waiting for tenant, each in self.tenants.items() if each.waiting}


@dataclass(slots=True)
class _Period:
    """The state of one model and priority while requests wait."""

    name: str
    virtual_time: float = 0.0
    done: float = 0.0
    """Tokens, by what was reported last."""
    tags: dict[str, float] = field(default_factory=dict)
    processes: dict[str, _Process] = field(default_factory=dict)


class ShareLedger:
    """The state that processes share."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._periods: dict[str, _Period] = {}
        self._begun = 0

    def count(self, process: str, report: ShareReport) -> SharedTags | None:
        """Count what a process reports, and return what all have; None: nobody waits anywhere."""
        now = self._clock()
        period = self._periods.get(report.name)
        if period is None:
            self._begun += 1
            period = _Period(f"period {self._begun}")
        alive = {name: each for name, each in period.processes.items() if now - each.at <= LIFE_S}
        before = alive.pop(process, _Process(now, {}))
        elsewhere = Counter[str]()
        for other in alive.values():
            elsewhere.update(other.waiting)
        self._charge(period, report, before, {*before.waiting, *elsewhere})
        active = {tenant: each for tenant, each in report.tenants.items() if each.waiting or each.ahead}
        own = _Process(now, active)
        if not own.waiting and not elsewhere:
            self._periods.pop(report.name, None)
            return None
        self._periods[report.name] = period
        period.processes = {**alive, process: own} if active else alive
        self._advance(period, {*own.waiting, *elsewhere})
        return SharedTags(period.name, period.virtual_time, dict(period.tags), dict(elsewhere))

    def _charge(self, period: _Period, report: ShareReport, before: _Process, waiting: set[str]) -> None:
        counts = report.period == period.name
        period.done = 0.0
        for tenant, each in report.tenants.items():
            tag = period.tags.get(tenant, period.virtual_time)
            if tenant not in waiting:
                tag = max(tag, period.virtual_time)
            given = each.work if counts else each.in_advance
            period.tags[tenant] = tag + given
            last = before.tenants.get(tenant) if counts else None
            period.done += each.weight * (given + (last.ahead if last else 0) - each.ahead)

    def _advance(self, period: _Period, waiting: set[str]) -> None:
        ahead, weights = defaultdict[str, float](float), dict[str, int]()
        for process in period.processes.values():
            for tenant, each in process.tenants.items():
                ahead[tenant] += each.ahead
                weights[tenant] = each.weight
        tags = {tenant: period.tags.get(tenant, period.virtual_time) for tenant in waiting}
        _, done = min((tag, tag - ahead[tenant]) for tenant, tag in tags.items())
        period.virtual_time = max(period.virtual_time + max(0.0, period.done) / sum(weights.values()), done)
        kept = {tenant: tag for tenant, tag in period.tags.items() if tenant in waiting or tag > period.virtual_time}
        if len(kept) - len(waiting) > MOST_TENANTS:
            kept = {tenant: tag for tenant, tag in kept.items() if tenant in waiting}
        period.tags = kept


class LedgerStore:
    """The ShareStore of one process."""

    def __init__(self, ledger: ShareLedger, process: str) -> None:
        self.failures = 0
        self.is_paused = False
        self._ledger = ledger
        self._process = process

    async def exchange(self, reports: Sequence[ShareReport]) -> Sequence[SharedTags | None] | None:
        """Count what this process reports, and return what all have."""
        return [self._ledger.count(self._process, report) for report in reports]

    async def close(self) -> None:
        """Do nothing."""
