"""Ejects workers that are much slower than others of their model, or fail: outlier detection, as in Envoy.

Workers are compared once a second, by what they have sent since. Four kinds are ejected: one whose tokens take many
times as long as those of the others, in the last ten seconds in which it had any to send; one that has requests and
sends no token for long while others do; one that serves some sequences and starves others; and one that fails requests
which others serve. An ejected worker gets no new requests, for longer each time, and its sequences move as from a
draining one. The last worker of a revision is never ejected: unless it is just slow, it is withheld from new requests
while another revision serves.
"""

import enum
import logging
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tokenwire.coordinator.fleet.session_stats import TokenGaps
from tokenwire.coordinator.fleet.token_pace import PacedWorker, TokenPace, usual_s
from tokenwire.options import Bounds, Option, Section, check_bounds, option

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
_LEAST_GAP_S = 0.25
"""Tokens that come faster than this are not slow."""
PREFILL_S_PER_TOKEN = 0.002
"""As for stalls: slower than any GPU."""
_MOST_TIMES = 10
_MOST_STARVED = 2
"""More sequences than this that one session of a worker starved are its fault."""
_MOST_FAILED = 4
"""More requests than this that it failed and others served, less those that it served, are its fault."""

MOST_ERRORS = 4
"""More than this of the last worker of a revision are its fault, if another revision serves."""
_MOST_OF_ONE = 3
"""Of these, no more count by what one other worker served; errors of its own engine count as another one's."""


class EjectionReason(enum.StrEnum):
    """Why a worker is ejected."""

    SLOW = "slow"
    """Its tokens take much longer than those of others."""
    SILENT = "silent"
    """It has requests, and sends no token while others do."""
    STARVING = "starving"
    """It serves some sequences, and sends no token for others."""
    FAILING = "failing"
    """It fails requests that others serve."""


@dataclass(frozen=True, slots=True)
class OutlierSettings:
    """When workers are ejected, and for how long."""

    factor: float = option(
        10.0,
        Option(
            "--outlier-factor",
            "How many times as long as others of its model a worker may take, for a token or for the first one; "
            "beyond that it is ejected.",
            Section.FAILOVER,
            bounds=Bounds(above=1),
        ),
    )
    silence_timeout_s: float = option(
        30.0,
        Option(
            "--silence-timeout",
            "Least number of seconds without a token after which a worker that has requests is ejected, if others "
            "of its model generate; and after which a sequence is moved, if its worker's engine makes steps.",
            Section.FAILOVER,
            bounds=Bounds(above=0),
        ),
    )
    ejection_time_s: float = option(
        30.0,
        Option(
            "--ejection-time",
            "Seconds for which a worker is ejected, times how often it was.",
            Section.FAILOVER,
            bounds=Bounds(above=0),
        ),
    )
    max_ejection_percent: float = option(
        10.0,
        Option(
            "--max-ejection-percent",
            "Largest share of a model's workers that are ejected at a time for being slow, at least one. Silent, "
            "starving and failing ones are ejected beyond it, as long as others serve. 0: never eject any.",
            Section.FAILOVER,
            bounds=Bounds(at_least=0, at_most=100),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)


class ComparedWorker(PacedWorker, Protocol):
    """The part of a WorkerSession that is compared."""

    ejected: str
    """Why it is ejected; empty while it is not."""
    model_name: str
    ejections: dict[EjectionReason, int]
    starved: int
    """Sequences that it starved since it is connected, or was ejected for it."""
    failed: int
    """Requests that it failed and others served, less those that it served, since it is connected or was ejected."""
    witnesses: Mapping[str, int]
    """How many of these each worker served, by address, and how many its own engine failed."""

    withheld: str
    """Why its revision is to get no new requests where another one serves; empty while it may."""
    on_probation: bool
    """Whether it was withheld, and has served no request since: its revision gets one at a time."""
    errors: int
    """Requests that it ended with an error, less those that it served, since it is connected."""

    @property
    def address(self) -> str:
        """The worker's address."""

    @property
    def gaps(self) -> TokenGaps | None:
        """The time between its tokens, another object in each session; None where it is unknown."""


W = TypeVar("W", bound=ComparedWorker)


@dataclass(slots=True)
class _Ejections:
    """Those of one address."""

    times: int = 0
    """How often, less one for each of their lengths that went well."""
    until: float = 0.0
    """When the last one ends, or when it last went well."""


class OutlierDetector(Generic[W]):
    """Compares workers, and ejects and readmits them by setting `ejected`."""

    def __init__(self, settings: OutlierSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._paces: dict[str, TokenPace] = {}
        """By address."""
        self._ejections: dict[str, _Ejections] = {}
        """By address."""

    def check(
        self,
        workers: Sequence[W],
        is_covered: Callable[[W], bool],
        is_replaced: Callable[[W], bool] = lambda worker: False,
    ) -> list[W]:
        """Compare all workers; return those that were ejected or readmitted.

        `is_covered` returns whether another one could take a worker's requests, `is_replaced` whether another revision
        of its model serves.
        """
        now = self._clock()
        self._update([worker for worker in workers if worker.gaps is not None], now)
        changed = [worker for worker in workers if worker.ejected and self._is_readmitted(worker, is_covered, now)]
        for worker in workers:
            if worker.withheld and (is_covered(worker) or not is_replaced(worker) or self._is_over(worker, now)):
                self._release(worker, now)
        groups: dict[str, list[W]] = {}
        for worker in workers:
            groups.setdefault(worker.model_name, []).append(worker)
        for group in groups.values():
            changed += self._eject(group, is_covered, is_replaced, now)
        return changed

    def _update(self, workers: Iterable[W], now: float) -> None:
        known, self._paces = self._paces, {}
        for worker in workers:
            assert worker.gaps is not None
            pace = known.get(worker.address)
            if pace is None or pace.gaps is not worker.gaps:
                pace = TokenPace(worker.gaps, now, now, worker.workload.tokens)
            pace.update(worker, now)
            self._paces[worker.address] = pace
        for address, ejections in list(self._ejections.items()):
            if now - ejections.until >= self.settings.ejection_time_s * ejections.times:
                ejections.times, ejections.until = ejections.times - 1, now
                if not ejections.times:
                    del self._ejections[address]

    def _is_readmitted(self, worker: W, is_covered: Callable[[W], bool], now: float) -> bool:
        if not self._is_over(worker, now) and is_covered(worker):
            return False
        log.info("worker %s is no longer ejected", worker.address)
        worker.ejected = ""
        self._judge_anew(worker, now)
        return True

    def _is_over(self, worker: W, now: float) -> bool:
        ejections = self._ejections.get(worker.address)
        return ejections is None or now >= ejections.until

    def _judge_anew(self, worker: W, now: float) -> None:
        if worker.address in self._paces:
            self._paces[worker.address].forget()
            self._paces[worker.address].silent_since = now

    def _withhold(self, worker: W, why: str, now: float) -> None:
        """Let the last worker of a revision have no new requests, but keep those that it has."""
        length = self._lengthen(worker, now)
        worker.withheld = f"its revision gets no new requests for {length:g} s, without a share of its own: {why}"
        worker.on_probation = True
        worker.starved = 0
        log.warning("worker %s, the last one of its revision, is withheld for %g s: %s", worker.address, length, why)

    def _release(self, worker: W, now: float) -> None:
        """Let it have a request at a time, until it serves one; the next error is one too many."""
        log.info("worker %s is no longer withheld", worker.address)
        worker.withheld, worker.errors = "", min(worker.errors, MOST_ERRORS)
        self._judge_anew(worker, now)

    def _lengthen(self, worker: W, now: float) -> float:
        """Return for how long a worker gets no new requests from now on."""
        ejections = self._ejections.setdefault(worker.address, _Ejections())
        ejections.times = min(ejections.times + 1, _MOST_TIMES)
        length = self.settings.ejection_time_s * ejections.times
        ejections.until = now + length
        return length

    def _eject(
        self, group: list[W], is_covered: Callable[[W], bool], is_replaced: Callable[[W], bool], now: float
    ) -> list[W]:
        """Eject the outliers among workers of one model, as far as the limits allow; return them."""
        settings = self.settings
        ejected: list[W] = []
        if not settings.max_ejection_percent:
            return ejected
        most = max(1, int(len(group) * settings.max_ejection_percent / 100))
        for worker in group:
            known = [each for each in group if each is not worker and not each.ejected and each.address in self._paces]
            others = [self._paces[each.address] for each in known]
            able = sum(each is not worker and each.generates and not each.ejected for each in group)
            found = None if worker.ejected or not worker.generates else self._judge(worker, others, able, now)
            if not is_covered(worker):
                found = found or _ends_with_errors(worker)
                if found and found[0] is not EjectionReason.SLOW and not worker.withheld and is_replaced(worker):
                    self._withhold(worker, found[1], now)
                continue
            if found is None:
                continue
            reason, why = found
            if reason is EjectionReason.SLOW and sum(bool(each.ejected) for each in group) >= most:
                continue
            length = self._lengthen(worker, now)
            if worker.address in self._paces:
                self._paces[worker.address].forget()
            worker.withheld = ""
            worker.ejected = f"it is ejected for {length:g} s: {why}"
            worker.ejections[reason] += 1
            worker.starved, worker.failed, worker.witnesses = 0, 0, Counter()
            log.warning("worker %s gets no new requests for %g s: %s", worker.address, length, why)
            ejected.append(worker)
        return ejected

    def _judge(
        self, worker: W, others: Sequence[TokenPace], able: int, now: float
    ) -> tuple[EjectionReason, str] | None:
        """Return why a worker is an outlier; None if it is none. `able` is how many others there are."""
        # A worker that serves whatever others rightly refuse does not tell alone, where there are more.
        told = sum(min(count, _MOST_OF_ONE) for count in worker.witnesses.values())
        if worker.failed > _MOST_FAILED and (able < 2 or told > _MOST_FAILED):
            return EjectionReason.FAILING, f"{worker.failed} requests failed there that others served"
        pace, factor = self._paces.get(worker.address), self.settings.factor
        if pace is None:
            return None
        if worker.starved > _MOST_STARVED:
            return EjectionReason.STARVING, f"{worker.starved} requests got no token there while others did"
        silent_s = now - pace.silent_since
        generating = [other.silence_s for other in others if other.generated_at > pace.silent_since]
        if generating and worker.awaited_slots:
            limit_s = max(self.settings.silence_timeout_s, factor * statistics.median(generating))
            if silent_s > limit_s + worker.workload.prompt_tokens * PREFILL_S_PER_TOKEN:
                return EjectionReason.SILENT, f"it has requests, and sent no token for {silent_s:.0f} s"
        mean_s, others_s = pace.mean_s(), usual_s(others)
        if mean_s is not None and others_s is not None and mean_s > max(_LEAST_GAP_S, factor * others_s):
            return EjectionReason.SLOW, f"its tokens take {mean_s:.2f} s, those of others {others_s:.3f} s"
        return None


def _ends_with_errors(worker: ComparedWorker) -> tuple[EjectionReason, str] | None:
    if worker.errors <= MOST_ERRORS:
        return None
    return EjectionReason.FAILING, f"{worker.errors} requests more than it served ended there with an error"
