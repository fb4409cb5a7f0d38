"""The backoff after losses, and the half-open state."""

from pathlib import Path

import pytest

from tests.clock import Clock
from tests.workers import Listener, accept, running_worker, send, submission, unix_address, until
from tokenwire.coordinator.fleet.circuit_breaker import CircuitBreaker
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState


def test_failed_attempts_lengthen_the_backoff() -> None:
    """They double it, up to 5 s, with a jitter of a fifth; an announced end of a session resets it."""
    breaker = CircuitBreaker()
    for expected in (0.2, 0.4, 0.8, 1.6, 3.2, 5, 5):
        assert breaker.backoff_s() == pytest.approx(expected, rel=0.2)
        breaker.record_failure()
    breaker.record_drain()
    assert breaker.backoff_s() == pytest.approx(0.2, rel=0.2)


def test_consecutive_losses_lengthen_the_backoff() -> None:
    """By a factor of four, up to 30 s; a minute without a loss resets it; a stall counts as several losses."""
    time = Clock()
    breaker = CircuitBreaker(time)
    for expected in (0.2, 0.8, 3.2, 12.8, 30, 30):
        breaker.record_loss()
        assert breaker.backoff_s() == pytest.approx(expected, rel=0.2)
    time.now += 61
    breaker.record_loss()
    assert breaker.backoff_s() == pytest.approx(0.2, rel=0.2)
    breaker.record_loss(stalled=True)
    assert breaker.backoff_s() == pytest.approx(3.2, rel=0.2)


def test_a_worker_that_drains_again_and_again_is_as_one_that_is_lost() -> None:
    """Two drains in a minute are those of a restart."""
    time = Clock()
    breaker = CircuitBreaker(time)
    for expected, half_open in ((0.2, False), (0.2, False), (0.8, True), (3.2, True), (12.8, True), (30, True)):
        breaker.record_drain()
        assert breaker.backoff_s() == pytest.approx(expected, rel=0.2)
        assert breaker.half_open is half_open
    breaker.record_success()
    time.now += 61
    breaker.record_drain()
    assert breaker.backoff_s() == pytest.approx(0.2, rel=0.2)
    assert not breaker.half_open


async def test_a_worker_that_returns_has_little_capacity(tmp_path: Path) -> None:
    """After a loss it has capacity for a few sequences, until it has generated a token."""
    address = unix_address(tmp_path)
    pool = WorkerPool("test", accept)
    pool.update([address])
    async with running_worker(address):
        await pool.wait_ready()
        (session,) = pool.sessions
        assert pool.free_capacity("simulated") > 100
    await until(lambda: session.state is SessionState.CONNECTING)
    async with running_worker(address):
        await pool.wait_ready()
        assert pool.free_capacity("simulated") == 8
        listener = Listener()
        send(pool, submission(), [listener])
        assert pool.free_capacity("simulated") == 7
        await listener.ended.wait()
        assert pool.free_capacity("simulated") > 100
        await pool.stop()
