"""What the store of shares counts, in this process and by a clock: for queues that share workers in virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.admission.redis_share_store import LIFE_S, MOST_TENANTS
from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport


@dataclass(slots=True)
class _Period:
    """The state of one model and priority while requests wait."""

    name: str
    virtual_time: float = 0.0
    tags: dict[str, float] = field(default_factory=dict)
    processes: dict[str, tuple[float, dict[str, int]]] = field(default_factory=dict)
    """When each reported last, and what waits there by tenant."""


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
        alive = {name: each for name, each in period.processes.items() if now - each[0] <= LIFE_S}
        _, before = alive.pop(process, (now, dict[str, int]()))
        elsewhere: dict[str, int] = {}
        for _, waiting in alive.values():
            for tenant, count in waiting.items():
                elsewhere[tenant] = elsewhere.get(tenant, 0) + count
        self._charge(period, report, {*before, *elsewhere})
        own = {tenant: each.waiting for tenant, each in report.tenants.items() if each.waiting}
        if not own and not elsewhere:
            self._periods.pop(report.name, None)
            return None
        self._periods[report.name] = period
        period.processes = {**alive, process: (now, own)} if own else alive
        self._advance(period, {*own, *elsewhere})
        return SharedTags(period.name, period.virtual_time, dict(period.tags), elsewhere)

    def _charge(self, period: _Period, report: ShareReport, waiting: set[str]) -> None:
        for tenant, each in report.tenants.items():
            tag = period.tags.get(tenant, period.virtual_time)
            if tenant not in waiting:
                tag = max(tag, period.virtual_time)
            period.tags[tenant] = tag + (each.work if report.period == period.name else each.in_advance)

    def _advance(self, period: _Period, waiting: set[str]) -> None:
        least = min(period.tags.get(tenant, period.virtual_time) for tenant in waiting)
        period.virtual_time = max(period.virtual_time, least)
        ahead = {tenant: tag for tenant, tag in period.tags.items() if tenant in waiting or tag > period.virtual_time}
        if len(ahead) - len(waiting) > MOST_TENANTS:
            ahead = {tenant: tag for tenant, tag in ahead.items() if tenant in waiting}
        period.tags = ahead


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
