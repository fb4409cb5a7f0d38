"""Deltas of messages."""

from tests.coordinator.parsing.fakes import FIRST, SECOND
from tokenwire.coordinator.parsing.message import MessageDelta, ToolCallDelta, joined, merge


def test_deltas_have_openais_format() -> None:
    """Absent parts are omitted."""
    call = ToolCallDelta(0, arguments="{")
    assert MessageDelta(content="c").as_dict() == {"content": "c"}
    assert MessageDelta(reasoning="r", tool_calls=(FIRST, call)).as_dict() == {
        "reasoning": "r",
        "tool_calls": [
            {"id": "1", "type": "function", "index": 0, "function": {"name": "a"}},
            {"index": 0, "function": {"arguments": "{"}},
        ],
    }


def test_deltas_merge() -> None:
    """Texts are joined, and so are arguments of the same call; a new call stays separate."""
    one = MessageDelta("a", None, (FIRST,))
    other = MessageDelta("b", "r", (ToolCallDelta(0, arguments="{"), ToolCallDelta(0, arguments="}"), SECOND))
    assert merge(one, other) == MessageDelta("ab", "r", (ToolCallDelta(0, "1", "a", "{}"), SECOND))
    assert merge(None, one) is one
    assert merge(one, None) is one
    assert merge(None, None) is None


def test_deltas_join_to_a_clients_message() -> None:
    """Calls by their index, with their arguments in one piece."""
    deltas = [
        MessageDelta(reasoning="hm"),
        MessageDelta("a", tool_calls=(FIRST, SECOND)),
        MessageDelta("b", tool_calls=(ToolCallDelta(0, arguments="{"), ToolCallDelta(1, arguments="[]"))),
        MessageDelta(tool_calls=(ToolCallDelta(0, arguments="}"),)),
    ]

    message = joined(deltas)

    assert (message["content"], message["reasoning"]) == ("ab", "hm")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "a", "arguments": "{}"},
        {"name": "b", "arguments": "[]"},
    ]
