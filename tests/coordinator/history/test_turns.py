"""Turns match requests with the same reasoning, or without generated reasoning."""

from array import array

import pytest

from tokenwire.coordinator.history.turns import MessageReasoning, Turn

PROMPT = Turn(array("I", [1, 2]), reasoning=(MessageReasoning(1, b"foreign", generated=False),))
REPLY = Turn(array("I", [3]), PROMPT, "token", (MessageReasoning(3, b"generated", generated=True),))


@pytest.mark.parametrize(
    ("given", "agrees"),
    [
        ({1: b"foreign", 3: b"generated"}, True),
        ({1: b"foreign"}, True),
        ({3: b"generated"}, False),
        ({}, False),
        ({1: b"foreign", 3: b"other"}, False),
        ({1: b"other", 3: b"generated"}, False),
        ({1: b"foreign", 2: b"new"}, False),
        ({1: b"foreign", 3: b"generated", 4: b"later"}, True),
    ],
)
def test_only_generated_reasoning_may_be_missing(given: dict[int, bytes], agrees: bool) -> None:
    """None may differ or be new up to the reply; later reasoning is ignored."""
    assert REPLY.agrees(given, 3) == agrees


def test_reasoning_of_a_reply_without_any_is_a_mismatch() -> None:
    """The client cannot have received it."""
    reply = Turn(array("I", [3]), PROMPT, "token")

    assert reply.agrees({1: b"foreign"}, 3)
    assert not reply.agrees({1: b"foreign", 3: b"new"}, 3)
