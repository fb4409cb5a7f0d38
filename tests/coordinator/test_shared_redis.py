"""Redis as coordinators share state in it."""

import asyncio
import logging

import pytest

from tests.clock import Clock
from tokenwire.coordinator.shared_redis import PAUSE_S, RedisHealth, check_url
from tokenwire.errors import InvalidRequest, Unavailable


@pytest.mark.parametrize("url", ["redis://:secret@host:1", "http://host:1", "host:1"])
def test_a_url_must_be_redis_without_a_password(url: str) -> None:
    """The error names the option and never contains the URL."""
    with pytest.raises(InvalidRequest, match="--some-store must") as raised:
        check_url(url, "--some-store")
    assert "secret" not in raised.value.message


def test_after_an_error_it_is_skipped_for_a_while(time: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first error and the end of the last."""
    caplog.set_level(logging.WARNING)
    health = RedisHealth("doing without it", time)
    assert (health.is_paused, health.has_failed) == (False, False)
    for _ in range(2):
        health.on_error(ConnectionError("refused"))
        time.now += PAUSE_S - 0.01
        assert health.is_paused

    time.now += 0.01
    assert (health.is_paused, health.has_failed) == (False, True)
    health.on_success()
    health.on_success()
    assert not health.has_failed
    assert [record.getMessage() for record in caplog.records] == [
        "Redis failed, doing without it until it responds: refused",
        "Redis responds again",
    ]


async def test_errors_and_silence_are_unavailable(time: Clock) -> None:
    """With the store's name, and at once for a while after them."""
    health, never = RedisHealth("doing without it", time), asyncio.Event()

    with pytest.raises(Unavailable, match="The store does not answer"):
        async with health.answers("The store", 60.0):
            raise ConnectionError("refused")
    with pytest.raises(Unavailable, match="Try again"):
        async with health.answers("The store", 60.0):
            pytest.fail("it was asked while it is skipped")
    time.now += PAUSE_S
    with pytest.raises(Unavailable):
        async with health.answers("The store", 0.0):
            await never.wait()
    time.now += PAUSE_S
    async with health.answers("The store", 60.0):
        pass
    assert not health.has_failed
