"""Turns: when the reasoning of a request is that of what was said."""

from array import array

import pytest

from tokenwire.coordinator.history.turns import Reasoning, Turn

PROMPT = Turn(array("I", [1, 2]), reasoning=(Reasoning(1, b"foreign", ours=False),))
REPLY = Turn(array("I", [3]), PROMPT, "token", (Reasoning(3, b"ours", ours=True),))


@pytest.mark.parametrize(
    ("given", "agrees"),
    [
        ({1: b"foreign", 3: b"ours"}, True),
        ({1: b"foreign"}, True),
        ({3: b"ours"}, False),
        ({}, False),
        ({1: b"foreign", 3: b"other"}, False),
        ({1: b"other", 3: b"ours"}, False),
        ({1: b"foreign", 2: b"new"}, False),
        ({1: b"foreign", 3: b"ours", 4: b"later"}, True),
    ],
)
def test_reasoning_may_only_be_missing_where_it_was_generated(given: dict[int, bytes], agrees: bool) -> None:
    """None may differ or be new, up to the reply; what comes behind it is not asked for."""
    assert REPLY.agrees(given, 3) == agrees


def test_reasoning_of_a_reply_that_had_none_is_another_reply_s() -> None:
    """The client cannot have got it."""
    reply = Turn(array("I", [3]), PROMPT, "token")

    assert reply.agrees({1: b"foreign"}, 3)
    assert not reply.agrees({1: b"foreign", 3: b"new"}, 3)
