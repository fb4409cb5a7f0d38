"""Grammars of requests: OpenAI's response_format and vLLM's structured_outputs."""

import json
from typing import Any, Literal

from pydantic import ConfigDict, Field

from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

# In vLLM's order, which its messages use.
_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")

_EXCLUSIVE = ("json", "regex", "choice")


class JsonSchema(RequestModel):
    """The schema in a response_format."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestModel):
    """OpenAI's response_format, and vLLM's structural tags in both formats."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchema | None = None

    def constraint(self) -> dict[str, Any]:
        """Return the constraint by vLLM's name; empty for plain text. Raises InvalidRequest."""
        match self.type:
            case "text":
                return {}
            case "json_object":
                return {"json_object": True}
            case "structural_tag":
                return {"structural_tag": self._structural_tag()}
        if self.json_schema is None:
            raise InvalidRequest(
                "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
                param="response_format",
            )
        return {"json": self.json_schema.json_schema}

    def _structural_tag(self) -> str:
        tag = self.model_extra or {}
        if "format" not in tag and not ("structures" in tag and "triggers" in tag):
            raise InvalidRequest("Invalid response_format structural_tag specification.", param="response_format")
        return json.dumps({"type": self.type, **tag})


class StructuredOutputs(RequestModel):
    """vLLM's structured_outputs."""

    model_config = ConfigDict(extra="allow")

    json_: str | dict[str, Any] | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None

    def is_exclusive(self) -> bool:
        """Return whether it has a constraint that excludes others."""
        return any(value is not None for value in (self.json_, self.regex, self.choice))


def requested_grammar(
    requested: StructuredOutputs | None, response_format: ResponseFormat | None
) -> pb.StructuredOutputs | None:
    """Return the only constraint of a request; response_format takes precedence. Raises InvalidRequest."""
    given = {} if requested is None else requested.model_dump(by_alias=True)
    if sum(given.get(name) is not None for name in _EXCLUSIVE) > 1:
        raise InvalidRequest(
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').",
            param="structured_outputs",
        )
    if requested is not None and all(given.get(name) is None for name in _CONSTRAINTS):
        raise _not_one_constraint(given, "structured_outputs")
    constraint = {} if response_format is None else response_format.constraint()
    if requested is None and not constraint:
        return None
    given |= constraint
    kinds = [name for name in _CONSTRAINTS if given.get(name) is not None]
    if len(kinds) != 1:
        raise _not_one_constraint(given, "response_format" if requested is None else "structured_outputs")
    wire = pb.StructuredOutputs(**_options(given))
    _set_constraint(wire, kinds[0], given[kinds[0]])
    return wire


def _not_one_constraint(given: dict[str, Any], param: str) -> InvalidRequest:
    shown = {name: given.get(name) for name in (*_CONSTRAINTS, *_options(given))}
    several = any(given.get(name) is not None for name in _CONSTRAINTS)
    can, wrong = ("can only", "multiple") if several else ("must", "none")
    return InvalidRequest(
        f"You {can} use one kind of structured outputs constraint but {wrong} are specified: {shown}", param=param
    )


def _options(given: dict[str, Any]) -> dict[str, Any]:
    names = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
    return {name: given[name] for name in names if given.get(name)}


def _set_constraint(wire: pb.StructuredOutputs, kind: str, value: Any) -> None:
    match kind:
        case "json":
            wire.json_schema = value if isinstance(value, str) else json.dumps(value)
        case "choice":
            wire.choice.CopyFrom(pb.Choices(values=value))
        case _:
            setattr(wire, kind, value)
