"""The rules of messages, without any parser."""

from typing import Any

import pytest

from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall, require_tool_parser
from tokenwire.errors import InvalidRequest

CALL = ParsedToolCall("1", "a", "{}")


@pytest.mark.parametrize(
    ("choice", "reason", "streamed", "full"),
    [
        ("auto", "stop", "tool_calls", "tool_calls"),
        ("auto", "length", "length", "tool_calls"),
        ("auto", "abort", "abort", "abort"),
        ("required", "stop", "tool_calls", "tool_calls"),
        ("required", "length", "length", "length"),
        ("named", "stop", "stop", "stop"),
    ],
)
def test_finish_reasons_of_calls(choice: Any, reason: str, streamed: str, full: str) -> None:
    """As in vLLM, they differ between streamed and full replies for calls that were cut."""
    rules = MessageRules(choice, parses_tools=True)
    assert rules.streamed_finish(reason, tools_streamed=True) == streamed
    assert rules.full_finish(reason, [CALL]) == full


def test_required_without_a_call_ends_with_tool_calls_only_in_full_responses() -> None:
    """As vLLM does."""
    rules = MessageRules("required", parses_tools=True)
    assert rules.streamed_finish("stop", tools_streamed=False) == "stop"
    assert rules.full_finish("stop", []) == "tool_calls"


@pytest.mark.parametrize(("choice", "content"), [("none", None), ("auto", None), ("required", ""), ("named", "")])
def test_content_is_null_or_empty_by_the_tool_choice(choice: Any, content: str | None) -> None:
    """A message with a forced tool has text, which may be empty."""
    assert MessageRules(choice, parses_tools=True).full_content(None) == content
    assert MessageRules(choice, parses_tools=True).full_content("x") == "x"


def test_calls_are_returned_only_if_allowed() -> None:
    """Not without a tool parser, and not if the client disables them."""
    assert MessageRules("none", parses_tools=True).full_calls([CALL]) == ()
    assert MessageRules("auto", parses_tools=False).full_calls([CALL]) == ()
    assert MessageRules("auto", parses_tools=True).full_calls([CALL, CALL]) == (CALL, CALL)
    assert MessageRules("named", parses_tools=False).full_calls([CALL]) == (CALL,)
    assert MessageRules("auto", parses_tools=True, parallel_tool_calls=False).full_calls([CALL, CALL]) == (CALL,)


def test_hidden_reasoning_hides_tokens() -> None:
    """They would disclose it."""
    assert MessageRules(include_reasoning=False).hides_tokens
    assert not MessageRules().hides_tokens


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("auto", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        ("required", 'tool_choice="required" requires --tool-call-parser to be set'),
        (
            {"type": "function", "function": {"name": "a"}},
            'tool_choice=function "a" requires --tool-call-parser to be set',
        ),
    ],
)
def test_without_parsers_tools_are_rejected(choice: Any, message: str) -> None:
    """With vLLM's messages."""
    with pytest.raises(InvalidRequest) as rejected:
        require_tool_parser(choice)
    assert rejected.value.message == message
