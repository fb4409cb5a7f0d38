"""Values of fields are the protocol's, or rejected by name."""

import json
from typing import Any

import pytest

from tests.coordinator.api.fields.requests import request_fields
from tokenwire.coordinator.api.fields.wire_values import (
    RepetitionDetection,
    checked_biases,
    checked_budget,
    checked_cache_salt,
    checked_number,
    checked_prompts,
    set_engine_fields,
)
from tokenwire.coordinator.generation.limits import MAX_BIASES, MAX_SEQUENCES
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


def test_repetitions_of_any_length_can_be_detected() -> None:
    """Numbers beyond the protocol's are reduced to its largest."""
    sizes = {"max_pattern_size": 2**40, "min_pattern_size": 2**33, "min_count": 2**32}
    wire = request_fields(repetition_detection=sizes).sampling(None).repetition_detection

    assert (wire.max_pattern_size, wire.min_pattern_size, wire.min_count) == (2**32 - 1,) * 3


def test_engine_objects_are_passed_as_json() -> None:
    """The engine's own fields are passed unchanged; empty objects count as absent."""
    sampling = request_fields(kv_transfer_params={"a": [1]}, vllm_xargs={"b": "c"}, ec_transfer_params={}).sampling(
        None
    )

    assert sampling.kv_transfer_params_json == '{"a":[1]}'
    assert sampling.extra_args_json == '{"b":"c"}'
    assert not sampling.HasField("ec_transfer_params_json")


@pytest.mark.parametrize("depth", [2, 400])
def test_engine_fields_arrive_as_they_were_given(depth: int) -> None:
    """However deep they are, with numbers that JSON does not have."""
    value: dict[str, Any] = {"inf": float("inf"), "large": 10**30, "text": "\u00e9\u2028"}
    for _ in range(depth):
        value = {"a": value}
    sampling = pb.SamplingParams()

    set_engine_fields(sampling, None, None, value)

    assert json.loads(sampling.extra_args_json) == value


@pytest.mark.parametrize(
    ("detection", "words"),
    [
        ({"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, "min_pattern_size <= max_pattern_size"),
        ({"max_pattern_size": 2, "min_pattern_size": -1, "min_count": 2}, "must be >=0"),
        ({"max_pattern_size": 2, "min_count": 1}, "min_count must be >= 2"),
    ],
)
def test_contradictory_detections_are_rejected(detection: dict[str, int], words: str) -> None:
    """As in vLLM; sizes of zero disable it, whatever the count."""
    with pytest.raises(InvalidRequest, match=words):
        RepetitionDetection(**detection).to_wire()
    assert RepetitionDetection(min_count=1).to_wire() == pb.RepetitionDetection(min_count=1)


@pytest.mark.parametrize("salt", ["", 5, "x" * 129, "a@b", "a/b", "a\\b", "a\0"])
def test_invalid_cache_salts_are_rejected(salt: object) -> None:
    """None is no salt."""
    with pytest.raises(InvalidRequest, match="cache_salt"):
        checked_cache_salt(salt)
    assert checked_cache_salt(None) is None
    assert checked_cache_salt("x" * 128) == "x" * 128


@pytest.mark.parametrize(("budget", "checked"), [(None, None), (-1, None), (0, 0), (2**31 - 1, 2**31 - 1)])
def test_a_budget_of_minus_one_is_unlimited(budget: object, checked: int | None) -> None:
    """As in vLLM."""
    assert checked_budget(budget) == checked


@pytest.mark.parametrize("budget", [-2, 2**31, True, "5", 1.5])
def test_other_budgets_are_rejected(budget: object) -> None:
    """By name."""
    with pytest.raises(InvalidRequest, match="thinking_token_budget"):
        checked_budget(budget)


def test_strings_are_not_numbers() -> None:
    """Even if they look like some."""
    assert checked_number("logprobs")(3) == 3
    with pytest.raises(InvalidRequest, match="`logprobs` must be an integer"):
        checked_number("logprobs")("3")


def test_lists_are_counted_before_they_are_parsed() -> None:
    """Parsing millions of entries would block everything; ids of one prompt may be many."""
    with pytest.raises(InvalidRequest, match=f"more than {MAX_BIASES}"):
        checked_biases({str(i): 1 for i in range(MAX_BIASES + 1)})
    with pytest.raises(InvalidRequest, match="`prompt` has"):
        checked_prompts("prompt")(["a"] * (MAX_SEQUENCES + 1))
    assert checked_prompts("prompt")(ids := [1] * (MAX_SEQUENCES + 1)) is ids
