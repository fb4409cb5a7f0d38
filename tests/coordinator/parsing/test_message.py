"""Deltas of messages."""

from tests.coordinator.parsing.fakes import FIRST, SECOND
from tokenwire.coordinator.parsing.message import MessageDelta, ToolCallDelta, merge


def test_deltas_merge() -> None:
    """Texts are joined, and so are arguments of the same call; a new call stays separate."""
    one = MessageDelta("a", None, (FIRST,))
    other = MessageDelta("b", "r", (ToolCallDelta(0, arguments="{"), ToolCallDelta(0, arguments="}"), SECOND))
    assert merge(one, other) == MessageDelta("ab", "r", (ToolCallDelta(0, "1", "a", "{}"), SECOND))
    assert merge(None, one) is one
    assert merge(one, None) is one
    assert merge(None, None) is None
