"""Checks a request's tools, and converts them for chat templates as vLLM does: key order and nulls reach the prompt."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import FailFast, TypeAdapter, ValidationError

from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.parsing.rules import CheckedToolChoice
from tokenwire.errors import InvalidRequest, Malformed


class _Function(RequestModel):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _Tool(RequestModel):
    type: Literal["function"] = "function"
    function: _Function
    defer_loading: bool | None = None


MAX_TOOLS = 1024
_TOOLS = TypeAdapter(Annotated[list[_Tool], FailFast()])

# Omitted unless given.
_OPTIONAL = ("strict", "defer_loading")

_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


def parse_tools(tools: object) -> list[dict[str, Any]] | None:
    """Validate tools and return them in the template's form. Raises InvalidRequest that names the invalid field."""
    if tools is None:
        return None
    _check_not_empty(tools)
    if isinstance(tools, list) and len(tools) > MAX_TOOLS:
        raise InvalidRequest(f"At most {MAX_TOOLS} tools are allowed, got {len(tools)}.", param="tools")
    try:
        return [_dump(tool) for tool in _TOOLS.validate_python(tools)]
    except ValidationError as error:
        first = error.errors()[0]
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise Malformed(f"tools{path}: {first['msg']}", param="tools") from error


def _dump(tool: _Tool) -> dict[str, Any]:
    if tool.function.defer_loading is None:
        tool.function.defer_loading = tool.defer_loading
    dumped = tool.model_dump()
    for fields in (dumped, dumped["function"]):
        for name in _OPTIONAL:
            if name in fields and fields[name] is None:
                del fields[name]
    return dumped


def check_tool_choice(body: Mapping[str, Any]) -> CheckedToolChoice:
    """Check tools and tool_choice of a chat request, as vLLM does; return the choice. Raises InvalidRequest."""
    tools = body.get("tools")
    _check_not_empty(tools)
    choice: Any = body.get("tool_choice", "auto" if tools else "none")
    if choice is None or choice == "none":
        return None
    if tools is None:
        raise InvalidRequest("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if isinstance(choice, dict):
        _check_named(choice, tools)
    elif choice not in ("auto", "required"):
        raise InvalidRequest(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            param="tool_choice",
        )
    checked: CheckedToolChoice = choice
    return checked


def _check_named(choice: Mapping[str, Any], tools: Sequence[Any]) -> None:
    function = choice.get("function")
    if not isinstance(function, dict):
        message, param = f"Invalid value for `function`: `{function}` in `tool_choice`! {_USAGE}", "function"
    elif "name" not in function:
        message, param = f"Expected field `name` in `function` in `tool_choice`! {_USAGE}", "function.name"
    elif not isinstance(name := function["name"], str) or not name:
        message, param = f"Invalid `name` in `function`: `{name}` in `tool_choice`! {_USAGE}", "function.name"
    elif not any(_name(tool) == name for tool in tools):
        message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise InvalidRequest(message, param="tool_choice")
    else:
        return
    raise InvalidRequest(message, param=f"tool_choice.{param}")


def _name(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _check_not_empty(tools: object) -> None:
    if tools == []:
        raise InvalidRequest(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
