"""Protocol messages under vLLM's names, for its parameters and for its HTTP server."""

from typing import Any

import pytest

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.vllm_names import json_object, plain_fields, repetition_detection, structured_outputs
from tokenwire.v1 import inference_pb2 as pb


def test_only_fields_that_are_set_are_passed_on() -> None:
    """Zero and false are values; an absent field and an empty list leave vLLM its default."""
    params = pb.SamplingParams(temperature=0, ignore_eos=False, seed=-1, stop_token_ids=[2, 3])

    assert plain_fields(pb.SamplingParams()) == {}
    assert plain_fields(params) == {"temperature": 0, "ignore_eos": False, "seed": -1, "stop_token_ids": [2, 3]}


@pytest.mark.parametrize(
    ("wire", "constraint"),
    [
        (pb.StructuredOutputs(json_schema="{}"), {"json": "{}"}),
        (pb.StructuredOutputs(regex="a+"), {"regex": "a+"}),
        (pb.StructuredOutputs(choice=pb.Choices(values=["yes", "no"])), {"choice": ["yes", "no"]}),
        (pb.StructuredOutputs(json_object=True), {"json_object": True}),
        (pb.StructuredOutputs(regex="a", whitespace_pattern=" ?"), {"regex": "a", "whitespace_pattern": " ?"}),
        (pb.StructuredOutputs(), {}),
    ],
)
def test_a_constraint_has_vllms_name(wire: pb.StructuredOutputs, constraint: dict[str, Any]) -> None:
    """JSON schemas and choices are called otherwise on the wire; both switches are always given."""
    switches = {"disable_any_whitespace": False, "disable_additional_properties": False}

    assert structured_outputs(wire) == {**switches, **constraint}


def test_repetition_detection_has_all_of_its_fields() -> None:
    """vLLM's object has no defaults for them."""
    wire = pb.RepetitionDetection(max_pattern_size=8, min_count=3)

    assert repetition_detection(wire) == {"max_pattern_size": 8, "min_pattern_size": 0, "min_count": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not valid JSON"), ("[1]", "must be a JSON object"), ("[" * 100_000, "is not valid JSON")],
)
def test_json_that_is_no_object_names_the_parameter(text: str, message: str) -> None:
    """Whether it cannot be parsed, is something else, or is nested too deeply."""
    with pytest.raises(InvalidRequest, match=f"extra_args {message}") as rejected:
        json_object(text, "extra_args")

    assert rejected.value.param == "extra_args"
    assert json_object('{"a": 1}', "extra_args") == {"a": 1}
