"""Tools in the form of chat templates."""

from typing import Any

import pytest

from tokenwire.coordinator.api.fields.tools import MAX_TOOLS, parse_tools
from tokenwire.errors import InvalidRequest

TOOL = {"type": "function", "function": {"name": "f"}}


def test_absent_fields_are_null_but_strict_and_deferred_ones_are_omitted() -> None:
    """Key order and nulls reach the prompt, in vLLM's order whatever the client's."""
    (tool,) = parse_tools([{"function": {"parameters": {"b": 1, "a": 2}, "name": "f"}, "type": "function"}]) or [{}]

    assert list(tool.items()) == [
        ("type", "function"),
        ("function", {"name": "f", "description": None, "parameters": {"b": 1, "a": 2}}),
    ]
    assert list(tool["function"]["parameters"]) == ["b", "a"]


def test_a_deferred_tool_is_a_deferred_function() -> None:
    """Unless the function sets it otherwise."""
    tools = parse_tools([{**TOOL, "defer_loading": True}, {"function": {"name": "f", "strict": True}}]) or []

    assert tools[0]["function"]["defer_loading"] is tools[0]["defer_loading"] is True
    assert tools[1]["function"]["strict"] is True


def test_no_tools_differ_from_an_empty_list() -> None:
    """As in OpenAI's API."""
    assert parse_tools(None) is None
    with pytest.raises(InvalidRequest, match="empty array"):
        parse_tools([])


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([TOOL, {"type": "function"}], "tools[1].function: Field required"),
        ([{"type": "function", "function": {"name": 5}}], "tools[0].function.name"),
        ([{"type": "custom", "function": {"name": "f"}}], "tools[0].type"),
        ("f", "tools: Input should be a valid list"),
        ([TOOL] * (MAX_TOOLS + 1), f"At most {MAX_TOOLS} tools"),
    ],
)
def test_invalid_tools_are_rejected_by_name(tools: Any, words: str) -> None:
    """The first one."""
    with pytest.raises(InvalidRequest) as raised:
        parse_tools(tools)

    assert words in raised.value.message
    assert raised.value.param == "tools"
