"""Samples of traffic, with a clock and a fleet of the test."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.clock import Clock
from tokenwire.coordinator.api.status_page.traffic import FIRST_TOKEN_BOUNDS_S, PERIOD_S, TrafficSamples, until_next
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_stats import TOKEN_GAP_BOUNDS_S, SessionStats
from tokenwire.coordinator.observability.record import RequestRecord

IDLE = [0, 0, 0, 0, 0, [], []]


@dataclass
class TokenCounts:
    """Workers by address with the tokens received from each, and the statistics of their model."""

    tokens: dict[str, int] = field(default_factory=dict)
    stats: SessionStats = field(default_factory=SessionStats)

    def sessions(self) -> list[WorkerSession]:
        """Return what the samples read of sessions."""
        found = [SimpleNamespace(address=name, workload=SimpleNamespace(tokens=n)) for name, n in self.tokens.items()]
        return cast(list[WorkerSession], found)


@pytest.fixture
def fleet() -> TokenCounts:
    """A fleet without workers."""
    return TokenCounts()


@pytest.fixture
def samples(fleet: TokenCounts, time: Clock) -> TrafficSamples:
    """Samples of that fleet."""
    return TrafficSamples(fleet.sessions, {"m": fleet.stats}, time)


@pytest.fixture
def sample(samples: TrafficSamples, time: Clock) -> Callable[[], list[Any]]:
    """Return a function that lets a period pass and returns its sample, without its period and seconds."""

    def take() -> list[Any]:
        time.now += PERIOD_S
        samples.sample()
        values: list[Any] = json.loads(samples.since(0))[-1]
        return values[2:]

    return take


def record(status: int = 200, **fields: Any) -> RequestRecord:
    """Return a finished request."""
    return RequestRecord("POST", began_at=10.0, status=status, **{"model": "m", **fields})


def test_requests_are_counted_once(samples: TrafficSamples, sample: Callable[[], list[Any]]) -> None:
    """With failures, cached tokens and times to first token. Requests that reached no model are not counted."""
    samples.on_end(record(prompt_tokens=30, cached_tokens=20, first_token_at=10.06))
    samples.on_end(record(status=429))
    samples.on_end(record(status=400))
    samples.on_end(record(model="", status=500))

    _, requests, failures, prompt, cached, first_tokens, _ = sample()

    assert (requests, failures, prompt, cached) == (3, 1, 30, 20)
    assert {FIRST_TOKEN_BOUNDS_S[index]: count for index, count in enumerate(first_tokens) if count} == {0.075: 1}
    assert sample() == IDLE


def test_tokens_and_gaps_are_differences(fleet: TokenCounts, sample: Callable[[], list[Any]]) -> None:
    """A worker that was removed and found again starts at zero, and no sample is negative."""
    fleet.tokens = {"a": 100, "b": 50}
    fleet.stats.add_gap(0.004, 7)
    tokens, *_, gaps = sample()
    assert tokens == 150
    assert {TOKEN_GAP_BOUNDS_S[index]: count for index, count in enumerate(gaps) if count} == {0.005: 7}

    fleet.tokens = {"a": 130}
    assert sample() == [30, *IDLE[1:]]
    fleet.tokens = {"a": 130, "b": 8}
    assert sample()[0] == 8


def test_an_hour_is_kept(samples: TrafficSamples, time: Clock) -> None:
    """Only what follows a period is returned, in order; older samples are dropped."""
    for _ in range(3600 // PERIOD_S + 10):
        time.now += PERIOD_S
        samples.sample()

    periods = [values[0] for values in json.loads(samples.since(0))]
    assert len(periods) == 3600 // PERIOD_S
    assert periods == sorted(periods)
    assert [values[0] for values in json.loads(samples.since(periods[-3]))] == periods[-2:]
    assert samples.since(periods[-1]) == b"[]"


def test_a_late_sample_has_its_seconds(samples: TrafficSamples, time: Clock) -> None:
    """So that a rate is right after the event loop was blocked."""
    time.now += 2 * PERIOD_S + 0.5
    samples.sample()

    assert json.loads(samples.since(0))[0][1] == 2 * PERIOD_S + 0.5


@pytest.mark.parametrize("fires_at", [99.9996, 100.0, 100.4])
def test_a_period_has_one_sample(samples: TrafficSamples, time: Clock, fires_at: float) -> None:
    """Also if a timer fires a little early, or late."""
    time.now = fires_at
    samples.sample()
    time.now += until_next(time.now)
    samples.sample()

    assert [values[0] for values in json.loads(samples.since(0))] == [20, 21]
    assert time.now == pytest.approx(105)
