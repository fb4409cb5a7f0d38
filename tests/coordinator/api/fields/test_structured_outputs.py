"""A request has at most one grammar, from any field."""

from typing import Any

import pytest

from tokenwire.coordinator.api.fields.structured_outputs import ResponseFormat, StructuredOutputs, requested_grammar
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


@pytest.mark.parametrize(
    ("given", "response_format", "wire"),
    [
        (None, {"type": "text"}, None),
        (None, {"type": "json_object"}, pb.StructuredOutputs(json_object=True)),
        ({"regex": "a+"}, None, pb.StructuredOutputs(regex="a+")),
        ({"json": {"a": 1}}, {"type": "text"}, pb.StructuredOutputs(json_schema='{"a": 1}')),
        ({"choice": ["a"]}, None, pb.StructuredOutputs(choice=pb.Choices(values=["a"]))),
    ],
)
def test_one_constraint_goes_to_the_worker(
    given: dict[str, Any] | None, response_format: dict[str, Any] | None, wire: pb.StructuredOutputs | None
) -> None:
    """OpenAI's response_format and vLLM's structured_outputs become the same message."""
    assert _resolve(given, response_format) == wire


@pytest.mark.parametrize(
    ("given", "response_format", "words"),
    [
        ({}, None, "must use one kind .* none"),
        ({}, {"type": "json_object"}, "must use one kind .* none"),
        ({"disable_any_whitespace": True}, None, "must use one kind .* none"),
        ({"regex": "a"}, {"type": "json_object"}, "can only use one kind .* multiple"),
        ({"regex": "a", "choice": ["a"]}, None, "only use one kind of constraints"),
    ],
)
def test_none_and_several_are_rejected(
    given: dict[str, Any], response_format: dict[str, Any] | None, words: str
) -> None:
    """Options without a constraint, and two constraints, are reported as such."""
    with pytest.raises(InvalidRequest, match=words):
        _resolve(given, response_format)


def _resolve(given: dict[str, Any] | None, response_format: dict[str, Any] | None) -> pb.StructuredOutputs | None:
    return requested_grammar(
        None if given is None else StructuredOutputs.model_validate(given),
        None if response_format is None else ResponseFormat.model_validate(response_format),
    )
