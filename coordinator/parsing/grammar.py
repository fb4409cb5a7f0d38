"""Converts the structured outputs that vLLM's parsers derive from a request to the protocol's message."""

import json
from typing import Protocol

from tokenwire.v1 import inference_pb2 as pb


class StructuredOutputsParams(Protocol):
    """vLLM's StructuredOutputsParams: one constraint is set, the others are None."""

    json: str | dict[str, object] | None
    regex: str | None
    choice: list[str] | None
    grammar: str | None
    json_object: bool | None
    structural_tag: str | None
    disable_any_whitespace: bool
    disable_additional_properties: bool
    whitespace_pattern: str | None


def to_wire(params: StructuredOutputsParams) -> pb.StructuredOutputs:
    """Return the grammar as a message."""
    message = pb.StructuredOutputs(
        disable_any_whitespace=params.disable_any_whitespace,
        disable_additional_properties=params.disable_additional_properties,
        whitespace_pattern=params.whitespace_pattern,
    )
    if params.json is not None:
        message.json_schema = params.json if isinstance(params.json, str) else json.dumps(params.json)
    elif params.choice is not None:
        message.choice.values.extend(params.choice)
    else:
        for name in ("regex", "grammar", "json_object", "structural_tag"):
            value = getattr(params, name)
            if value is not None:
                setattr(message, name, value)
    return message
