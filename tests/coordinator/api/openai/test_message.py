"""Messages as OpenAI's objects."""

from tests.coordinator.parsing.fakes import FIRST, SECOND
from tokenwire.coordinator.api.openai.message import delta_object, joined_message, tool_call_object
from tokenwire.coordinator.parsing.message import MessageDelta, ToolCallDelta
from tokenwire.coordinator.parsing.rules import ParsedToolCall


def test_deltas_have_openais_format() -> None:
    """Absent parts are omitted."""
    call = ToolCallDelta(0, arguments="{")
    assert delta_object(MessageDelta(content="c")) == {"content": "c"}
    assert delta_object(MessageDelta(reasoning="r", tool_calls=(FIRST, call))) == {
        "reasoning": "r",
        "tool_calls": [
            {"id": "1", "type": "function", "index": 0, "function": {"name": "a"}},
            {"index": 0, "function": {"arguments": "{"}},
        ],
    }


def test_a_complete_call_has_its_arguments_as_text() -> None:
    """With the type of all calls."""
    shown = tool_call_object(ParsedToolCall("1", "weather", "{}"))

    assert shown == {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_deltas_join_to_a_clients_message() -> None:
    """Calls by their index, with their arguments in one piece."""
    deltas = [
        MessageDelta(reasoning="hm"),
        MessageDelta("a", tool_calls=(FIRST, SECOND)),
        MessageDelta("b", tool_calls=(ToolCallDelta(0, arguments="{"), ToolCallDelta(1, arguments="[]"))),
        MessageDelta(tool_calls=(ToolCallDelta(0, arguments="}"),)),
    ]

    message = joined_message(deltas)

    assert (message["content"], message["reasoning"]) == ("ab", "hm")
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "a", "arguments": "{}"},
        {"name": "b", "arguments": "[]"},
    ]
