"""How fast one session of a worker generates: the seconds for a token, and for how long it has been silent."""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tokenwire.coordinator.fleet.session_stats import TokenGaps
from tokenwire.coordinator.fleet.workload import Workload

_WINDOW_S = 10.0
"""For how long a worker has had something to send, before it is compared."""
_LEAST_CHECKS = 3
"""Of a worker that is compared, or that others are compared to: with tokens since the one before."""
_LONG_PROMPTS = 8192
"""More tokens of prompts take several steps, which are slow everywhere."""


class PacedWorker(Protocol):
    """The part of a WorkerSession that its pace depends on."""

    @property
    def generates(self) -> bool:
        """Whether it is there to generate: ready, and not paused or asleep."""

    @property
    def awaited_slots(self) -> int:
        """Slots without their terminal event that are not aborted."""

    @property
    def workload(self) -> Workload:
        """The worker's workload."""


@dataclass(frozen=True, slots=True)
class _Check:
    """What has come since the last check with tokens."""

    awaited_s: float
    """Time in which somebody waited for it."""
    seconds: float
    """In which its sequences generated, together."""
    tokens: int


@dataclass(slots=True)
class TokenPace:
    """How fast one session of a worker generates."""

    gaps: TokenGaps
    silent_since: float
    """When it last sent a token, later by the time in which it had nothing to do. That is not life: what its clients
    gave up may have been all that it had."""
    checked_at: float
    received: int
    """All tokens, at the last check."""
    generated_at: float = float("-inf")
    silence_s: float = 0.0
    """The longest recent time without a token."""
    _seconds: float = 0.0
    _tokens: int = 0
    """What its gaps were at the last check."""
    _awaited_s: float = 0.0
    _recent: deque[_Check] = field(default_factory=deque)
    """The last checks with tokens: as few of them as are compared."""

    def update(self, worker: PacedWorker, now: float) -> None:
        """Take what has come since the last check."""
        seconds, tokens = self.gaps.seconds - self._seconds, self.gaps.tokens - self._tokens
        if worker.awaited_slots or tokens:
            self._awaited_s += now - self.checked_at
        if tokens or not worker.generates:
            self._seconds, self._tokens = self.gaps.seconds, self.gaps.tokens
            if worker.generates and worker.workload.prompt_tokens <= _LONG_PROMPTS:
                self._add(_Check(self._awaited_s, seconds, tokens))
            self._awaited_s = 0.0
        if worker.workload.tokens != self.received:
            self.silence_s = max(now - self.silent_since, self.silence_s / 2)
            self.received, self.generated_at, self.silent_since = worker.workload.tokens, now, now
        if not worker.awaited_slots or not worker.generates:
            self.silent_since += now - max(self.checked_at, self.silent_since)
        self.checked_at = now

    def forget(self) -> None:
        """Begin anew with its tokens."""
        self._recent.clear()
        self._awaited_s = 0.0

    def typical_s(self) -> float | None:
        """Return the seconds for a token in a usual check; None if there were too few."""
        if len(self._recent) < _LEAST_CHECKS:
            return None
        return statistics.median(check.seconds / check.tokens for check in self._recent)

    def mean_s(self) -> float | None:
        """Return the seconds for a token on average, without the slowest check; None if there was too little time.

        By tokens, so that quick ones count as many: those of a burst say nothing of the silence after it, but a worker
        that is quick for a second in ten is not slow. The slowest may have been an accident.
        """
        if len(self._recent) < _LEAST_CHECKS or sum(check.awaited_s for check in self._recent) < _WINDOW_S:
            return None
        compared = sorted(self._recent, key=lambda check: check.seconds / check.tokens)[:-1]
        return sum(check.seconds for check in compared) / sum(check.tokens for check in compared)

    def _add(self, check: _Check) -> None:
        self._recent.append(check)
        awaited_s = sum(each.awaited_s for each in self._recent)
        while len(self._recent) > _LEAST_CHECKS and awaited_s - self._recent[0].awaited_s >= _WINDOW_S:
            awaited_s -= self._recent.popleft().awaited_s


def usual_s(paces: Sequence[TokenPace]) -> float | None:
    """Return the seconds for a token of the middle one of some workers; None if none is known."""
    known = [seconds for pace in paces if (seconds := pace.typical_s()) is not None]
    return statistics.median(known) if known else None
