"""How a parser's output is returned to a client."""

import pytest

from tests.coordinator.parsing.fakes import FIRST, SECOND, ScriptedRawParser
from tokenwire.coordinator.parsing.choice_parser import ChoiceParser
from tokenwire.coordinator.parsing.message import MessageDelta, ParsedMessage, ParserFailed, ToolCallDelta
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall

CALLS = (ParsedToolCall("1", "a", "{}"), ParsedToolCall("2", "b", "{}"))
AUTO = MessageRules("auto", parses_tools=True)


def parser(raw: ScriptedRawParser, rules: MessageRules = AUTO) -> ChoiceParser:
    """Return a parser with a name."""
    return ChoiceParser(raw, rules, "tool call parser hermes")


def test_streamed_calls_end_with_tool_calls() -> None:
    """Where the model stopped by itself."""
    choice = parser(ScriptedRawParser(MessageDelta(tool_calls=(FIRST,))))
    assert choice.finish_reason("stop") == "stop"
    choice.delta("x", [1], False)
    assert choice.finish_reason("stop") == "tool_calls"
    assert choice.finish_reason("length") == "length"


def test_without_parallel_calls_only_the_first_is_returned() -> None:
    """Later ones are no deltas at all."""
    rules = MessageRules("auto", parses_tools=True, parallel_tool_calls=False)
    choice = parser(
        ScriptedRawParser(MessageDelta(tool_calls=(FIRST, SECOND)), MessageDelta(tool_calls=(SECOND,))), rules
    )
    assert choice.delta("x", [1], False) == MessageDelta(tool_calls=(FIRST,))
    assert choice.delta("x", [1], False) is None


def test_hidden_reasoning_is_not_returned() -> None:
    """Neither streamed nor in full responses; other parts of the delta are."""
    rules = MessageRules(include_reasoning=False)
    raw = ScriptedRawParser(MessageDelta(reasoning="r"), MessageDelta(content="c", reasoning="r"))
    choice = parser(raw, rules)
    assert choice.delta("x", [1], False) is None
    assert choice.delta("x", [1], False) == MessageDelta(content="c")
    assert parser(ScriptedRawParser(), rules).full("c", [1], "stop").reasoning is None


def test_a_full_message_has_its_parts() -> None:
    """With the finish reason of its rules."""
    message = parser(ScriptedRawParser(calls=CALLS)).full("text", [1], "stop")
    assert message == ParsedMessage("text", "because", CALLS, "tool_calls")


def test_reasoning_tokens_are_the_parsers() -> None:
    """The parser counts them."""
    assert parser(ScriptedRawParser()).reasoning_tokens([1, 2, 3, 4]) == 2


def test_a_failing_parser_is_named() -> None:
    """Whatever it raises becomes one error."""
    with pytest.raises(ParserFailed, match=r"The tool call parser hermes failed .*IndexError: list") as streamed:
        parser(ScriptedRawParser(IndexError("list"))).delta("x", [1], False)
    assert isinstance(streamed.value.__cause__, IndexError)
    with pytest.raises(ParserFailed, match="KeyError"):
        parser(ScriptedRawParser()).full("", [], "stop")
    with pytest.raises(ParserFailed, match="KeyError"):
        parser(ScriptedRawParser()).reasoning_tokens([])


def test_unpaired_surrogates_are_escaped() -> None:
    """Parsers resolve a model's escapes of them, which no response can contain; full and streamed are equal."""
    broken, shown = '{"x": "\ud800ü"}', r'{"x": "\ud800ü"}'
    full = parser(ScriptedRawParser(calls=(ParsedToolCall("1", "a", broken),))).full("text", [1], "stop")
    delta = MessageDelta(tool_calls=(ToolCallDelta(0, "1", "a", broken),))
    streamed = parser(ScriptedRawParser(delta)).delta("x", [1], False)

    assert [call.arguments for call in full.tool_calls] == [shown]
    assert streamed is not None
    assert [call.arguments for call in streamed.tool_calls] == [shown]
