"""Tools in the form of chat templates, and the choice among them."""

from typing import Any

import pytest

from tokenwire.coordinator.api.fields.tools import MAX_TOOLS, check_tool_choice, parse_tools
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


NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, None),
        ({"tools": None}, None),
        ({"tool_choice": None}, None),
        ({"tool_choice": "none"}, None),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"tools": [TOOL]}, "auto"),
        ({"tools": [TOOL], "tool_choice": "required"}, "required"),
        ({"tools": [TOOL], "tool_choice": NAMED}, NAMED),
    ],
)
def test_the_choice_is_checked(fields: dict[str, Any], choice: Any) -> None:
    """With tools it is automatic unless stated; none, like no tools, is no choice."""
    assert check_tool_choice(fields) == choice


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": []}, "must not be an empty array"),
        ({"tool_choice": "auto"}, "`tools` must be set"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "Invalid value for `tool_choice`: sometimes!"),
        ({"tools": [TOOL], "tool_choice": {}}, "Invalid value for `function`"),
        ({"tools": [TOOL], "tool_choice": {"function": {}}}, "Expected field `name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": ""}}}, "Invalid `name`"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "g"}}}, "does not match any"),
    ],
)
def test_an_invalid_choice_is_rejected(fields: dict[str, Any], message: str) -> None:
    """With vLLM's messages, as test_vllm_parity.py shows."""
    with pytest.raises(InvalidRequest, match=message):
        check_tool_choice(fields)
