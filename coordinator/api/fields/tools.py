"""Converts a request's tools for chat templates as vLLM does, because key order and nulls reach the prompt."""

from typing import Annotated, Any, Literal

from pydantic import FailFast, TypeAdapter, ValidationError

from tokenwire.coordinator.parsing.request_model import RequestModel
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


def parse_tools(tools: object) -> list[dict[str, Any]] | None:
    """Validate tools and return them in the template's form. Raises InvalidRequest that names the invalid field."""
    if tools is None:
        return None
    if tools == []:
        raise InvalidRequest(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.",
            param="tools",
        )
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
