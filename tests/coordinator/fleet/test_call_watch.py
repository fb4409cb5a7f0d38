"""When a worker counts as one that does not answer."""

from tests.clock import Clock
from tokenwire.coordinator.fleet.call_watch import CallWatch


def test_short_waits_add_up() -> None:
    """Clients with short timeouts find out too; what passes between them is no wait."""
    clock = Clock(0.0)
    watch = CallWatch(clock)
    for _ in range(5):
        assert not watch.is_silent
        watch.begin()
        assert watch.open == 1
        clock.now += 1
        watch.end()
        assert watch.open == 0
        clock.now += 9
    assert watch.is_silent


def test_calls_at_a_time_are_one_wait() -> None:
    """Until the last of them has ended."""
    clock = Clock(0.0)
    watch = CallWatch(clock)
    for _ in range(10):
        watch.begin()
    clock.now = 4
    for _ in range(9):
        watch.end()
    assert not watch.is_silent
    clock.now = 6
    assert watch.is_silent


def test_an_answer_to_one_call_ends_the_wait_of_all() -> None:
    """The others may take longer."""
    clock = Clock(0.0)
    watch = CallWatch(clock)
    watch.begin()
    watch.begin()
    clock.now = 6
    watch.on_answer()
    watch.end()
    assert not watch.is_silent
    clock.now = 12
    assert watch.is_silent


def test_a_minute_after_its_last_call_a_worker_is_tried_again() -> None:
    """By one request: with its call it is silent as before, until it answers."""
    clock = Clock(0.0)
    watch = CallWatch(clock)
    watch.begin()
    clock.now = 6
    watch.end()
    clock.now = 59
    assert watch.is_silent
    clock.now = 60
    assert not watch.is_silent
    watch.begin()
    assert watch.is_silent
    watch.on_answer()
    assert not watch.is_silent
