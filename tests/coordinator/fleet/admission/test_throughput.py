"""The estimate for Retry-After."""

from tests.clock import Clock
from tokenwire.coordinator.fleet.admission.throughput import ThroughputEstimate


def test_the_wait_follows_from_recent_starts() -> None:
    """At the rate of recent starts; older ones do not count."""
    clock = Clock()
    estimate = ThroughputEstimate(clock)
    for _ in range(5):
        estimate.started(4)
        clock.now += 1

    assert estimate.wait_s(12) == 3
    assert estimate.wait_s(1) == 1
    assert estimate.wait_s(1_000_000) == 60

    clock.now += 7
    assert estimate.wait_s(6) == 5  # 12 started in the last 10 s
    clock.now += 10
    assert estimate.wait_s(6) == 10
