"""A Responses request's tools and tool choice in chat's form; what only OpenAI's own servers can run is refused."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenwire.errors import InvalidRequest

_CHOICES = ("none", "auto", "required")


def chat_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tools in chat's form, None for none. Raises InvalidRequest that names the first one not served."""
    return [_chat_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ())] or None


def _chat_tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind != "function":
        raise InvalidRequest(f"{where} is of type {kind!r}: only function tools are supported.", param="tools")
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise InvalidRequest(f"{where}.name is required and must be a string.", param="tools")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def chat_tool_choice(
    choice: str | Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]] | None
) -> str | dict[str, Any] | None:
    """Return the choice in chat's form. Raises InvalidRequest."""
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind != "function":
            raise InvalidRequest(f"`tool_choice` of type {kind!r} is not supported.", param="tool_choice")
        return {"type": "function", "function": {"name": choice.get("name")}}
    if choice is not None and choice not in _CHOICES:
        raise InvalidRequest(
            f"`tool_choice` must be one of {', '.join(_CHOICES)}, or a function, not {choice!r}.", param="tool_choice"
        )
    # OpenAI's default is "auto", with tools or without.
    return None if choice == "auto" and not tools else choice
