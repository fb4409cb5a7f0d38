"""When it is worth to come back."""

from tests.clock import Clock
from tokenwire.coordinator.fleet.admission.throughput import ThroughputEstimate


def test_the_wait_follows_from_recent_starts() -> None:
    """As many starts in a second as there were lately; what is long ago does not count."""
    clock = Clock()
    pace = ThroughputEstimate(clock)
    for _ in range(5):
        pace.started(4)
        clock.now += 1

    assert pace.wait_s(12) == 3
    assert pace.wait_s(1) == 1
    assert pace.wait_s(1_000_000) == 60

    clock.now += 7
    assert pace.wait_s(6) == 5  # 12 started in the last 10 s
    clock.now += 10
    assert pace.wait_s(6) == 10
