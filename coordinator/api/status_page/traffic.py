"""An hour of samples of this process's traffic, for the charts of the status page."""

import asyncio
import json
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_stats import TOKEN_GAP_BOUNDS_S, StatsByModel
from tokenwire.coordinator.observability.record import RequestRecord

PERIOD_S = 5
"""Samples are taken at multiples of this in Unix time, so that those of several processes can be added."""
_KEPT = 3600 // PERIOD_S
FIRST_TOKEN_BOUNDS_S = (
    *(0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
_STEADY_FROM = time.time() - time.monotonic()
_FAILURES = frozenset({"rejected", "unavailable", "deadline", "error"})


def steady_time() -> float:
    """Return the Unix time, as it would be had the clock not been set since this process began."""
    return _STEADY_FROM + time.monotonic()


class TrafficSamples:
    """A listener for requests. Each period, what was counted since the last one becomes a sample.

    A sample is kept as the JSON that is sent, so that an hour of them costs little memory and a response no encoding:
    period, seconds, tokens, requests, failures, prompt tokens, cached prompt tokens, and the histograms of times to
    first token and of inter-token latencies, empty if nothing was observed.
    """

    def __init__(
        self,
        sessions: Callable[[], Sequence[WorkerSession]],
        stats: StatsByModel,
        clock: Callable[[], float] = steady_time,
    ) -> None:
        self._sessions = sessions
        self._stats = stats
        self._clock = clock
        self._samples: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._sampled_at = clock()
        self._tokens: dict[str, int] = {}
        self._gaps = _no_gaps()
        self._reset_counts()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start sampling."""
        self._timer = asyncio.get_running_loop().call_later(until_next(self._clock()), self._on_timer)

    def stop(self) -> None:
        """Stop sampling."""
        if self._timer is not None:
            self._timer.cancel()

    def on_end(self, record: RequestRecord) -> None:
        """Count a finished request that reached a model."""
        if not record.model:
            return
        self._requests += 1
        if record.outcome in _FAILURES:
            self._failures += 1
        self._prompt_tokens += record.prompt_tokens
        self._cached_tokens += record.cached_tokens
        seconds = record.first_token_s
        if seconds is not None:
            self._first_tokens[bisect_left(FIRST_TOKEN_BOUNDS_S, seconds)] += 1

    def since(self, period: int) -> bytes:
        """Return the samples after a period as a JSON array."""
        later = []
        for number, sample in reversed(self._samples):
            if number <= period:
                break
            later.append(sample)
        return b"[" + b",".join(reversed(later)) + b"]"

    def sample(self) -> None:
        """Add what was counted since the last sample."""
        now = self._clock()
        period = _period(now)
        counts = self._requests, self._failures, self._prompt_tokens, self._cached_tokens
        histograms = self._first_tokens if any(self._first_tokens) else [], list(self._new_gaps())
        values = period, round(now - self._sampled_at, 3), self._new_tokens(), *counts, *histograms
        self._samples.append((period, json.dumps(values, separators=(",", ":")).encode()))
        self._sampled_at = now
        self._reset_counts()

    def _on_timer(self) -> None:
        self.sample()
        self.start()

    def _reset_counts(self) -> None:
        self._requests = self._failures = self._prompt_tokens = self._cached_tokens = 0
        self._first_tokens = [0] * (len(FIRST_TOKEN_BOUNDS_S) + 1)

    def _new_tokens(self) -> int:
        before, self._tokens = self._tokens, {each.address: each.workload.tokens for each in self._sessions()}
        # The count of a worker that was removed and found again starts at zero.
        return sum(max(0, tokens - before.get(address, 0)) for address, tokens in self._tokens.items())

    def _new_gaps(self) -> Iterator[int]:
        before, self._gaps = self._gaps, _no_gaps()
        for stats in self._stats.values():
            self._gaps = [total + count for total, count in zip(self._gaps, stats.gaps, strict=True)]
        if self._gaps != before:
            yield from (now - then for now, then in zip(self._gaps, before, strict=True))


def _period(now: float) -> int:
    return round(now / PERIOD_S)


def until_next(now: float) -> float:
    """Return the seconds until the next sample, of the period after that of a sample taken now.

    A timer may fire a little before the end of a period: its sample is the period's nonetheless.
    """
    return (_period(now) + 1) * PERIOD_S - now


def _no_gaps() -> list[int]:
    return [0] * (len(TOKEN_GAP_BOUNDS_S) + 1)
