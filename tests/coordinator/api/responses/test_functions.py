"""Custom tools and the local shell are functions in the prompt."""

from typing import Any

import pytest

from tests.coordinator.api.responses.requests import PATCH, SHELL, TOOL, namespace, responses_chat
from tokenwire.errors import InvalidRequest


def test_custom_tools_and_the_shell_are_functions_in_the_prompt() -> None:
    """With one string, and with the parts of a command; a grammar is part of the description."""
    form = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    tools = [PATCH, {**PATCH, "name": "match", "format": form}, SHELL, {**namespace("n"), "tools": [PATCH]}]
    request = responses_chat(tools=tools, tool_choice={"type": "custom", "name": "match"})

    functions = [tool["function"] for tool in request.tools or ()]
    assert [function["name"] for function in functions] == ["patch", "match", "local_shell", "n__patch"]
    assert functions[0]["parameters"]["required"] == ["input"]
    assert functions[1]["description"] == "Patches.\n\nThe input has to follow a regular expression:\na+"
    assert functions[2]["parameters"]["required"] == ["command"]
    assert request.tool_choice == {"type": "function", "function": {"name": "match"}}


@pytest.mark.parametrize(
    "tools",
    [
        [{**PATCH, "format": {"type": "grammar", "syntax": "ebnf", "definition": "x"}}],
        [{**PATCH, "format": "text"}],
        [{**PATCH, "description": 1}],
        [{**PATCH, "name": None}],
        [PATCH, {**TOOL, "name": "patch"}],
        [{**TOOL, "name": "local_shell"}, SHELL],
    ],
)
def test_invalid_custom_tools_are_rejected(tools: list[Any]) -> None:
    """So are two functions with one name."""
    with pytest.raises(InvalidRequest) as raised:
        responses_chat(tools=tools)

    assert raised.value.param == "tools"
