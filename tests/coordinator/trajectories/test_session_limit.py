"""A session takes what fits into it; the log says when something does not, now and then."""

import pytest

from tests.clock import Clock
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES, SessionLimit, StoredEvent


def test_what_fits_is_taken_in_order() -> None:
    """Also after what does not fit; up to the last byte."""
    limit = SessionLimit(10)

    events = [StoredEvent(contents) for contents in (b"12345", b"1234", b"123", b"1")]
    assert limit.fitting("s", 2, events) == [b"12345", b"123"]
    assert limit.dropped == 2
    assert SessionLimit().fitting("s", 2**40, [StoredEvent(b"1")]) == [b"1"]


def test_a_full_session_still_takes_rewards_and_metadata() -> None:
    """Within a reserve, which no turn takes."""
    limit, turn, reward = SessionLimit(10), StoredEvent(b"1"), StoredEvent(b"12", takes_reserve=True)

    assert limit.fitting("s", 10, [turn, reward, turn, reward]) == [b"12", b"12"]
    assert limit.fitting("s", RESERVE_BYTES + 7, [reward, reward]) == [b"12"]
    assert (limit.most_with_reserve, limit.dropped) == (10 + RESERVE_BYTES, 3)


def test_the_log_names_the_option_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """However many events are dropped."""
    clock = Clock()
    limit = SessionLimit(1, clock)
    for _ in range(3):
        limit.fitting("s", 1, [StoredEvent(b"1")])
    clock.now += 61
    limit.fitting("s", 1, [StoredEvent(b"1")])

    counts = [record.getMessage().partition("--trajectories-session-mb")[2][-1] for record in caplog.records]
    assert counts == ["1", "4"]
