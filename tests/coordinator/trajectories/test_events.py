"""Events are stored and read as they were; what is no event is none."""

import pytest

from tests.coordinator.trajectories.turns import said_by_user, sampled_choice, turn_of
from tokenwire.coordinator.trajectories.events import (
    MessageParsed,
    RewardGiven,
    SessionEvent,
    SessionOpened,
    pack_event,
    unpack_event,
)

TURN = turn_of(
    [1, 2, 2**32 - 1],
    sampled_choice("a", [3, 4], spans=[["v1", 0, 2]], stop_reason="\n"),
    sampled_choice("b", [5], logprobs=None, index=1, resumed=True),
    base="z",
    messages=[said_by_user("\ud800 ü")],
    message_base="z",
    message_start=2,
    same_tools=True,
    sampling={"temperature": 0.5},
    started=1.0,
    ended=2.5,
    workers=["w"],
)


@pytest.mark.parametrize(
    "event",
    [TURN, SessionOpened(1.5, {"a": [1]}), RewardGiven(2.5, "r", -1.0, "a"), MessageParsed("a", said_by_user("x"))],
)
def test_an_event_is_read_as_it_was_stored(event: SessionEvent) -> None:
    """Ids and log-probabilities exactly."""
    assert unpack_event(pack_event(event)) == event


@pytest.mark.parametrize(
    "packed",
    [b"", b"{", b'{"kind":"other"}\n', b'{"kind":"reward"}\n', pack_event(TURN)[:-1], pack_event(TURN) + b"\0\0\0\0"],
)
def test_what_is_no_event_is_none(packed: bytes) -> None:
    """Such as one that was cut off, or one of another version."""
    assert unpack_event(packed) is None
