"""Converts protocol messages to vLLM's fields, for an engine in this process and for vLLM's HTTP server."""

import json
from typing import Any

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

# Fields with the same name and meaning on both sides; absent means vLLM's default.
_SCALARS = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "ignore_eos",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "prompt_logprob_start",
    "thinking_token_budget",
    "watermarking",
    "skip_reading_prefix_cache",
    "routed_experts_prompt_start",
)
# The same for lists; empty means absent.
_LISTS = ("stop_token_ids", "logprob_token_ids", "allowed_token_ids", "bad_words", "trace_decode_token_ids")

FINISH_REASONS = {
    "stop": pb.FINISH_REASON_STOP,
    "length": pb.FINISH_REASON_LENGTH,
    "abort": pb.FINISH_REASON_ABORT,
    "error": pb.FINISH_REASON_ERROR,
    "repetition": pb.FINISH_REASON_REPETITION,
}
NUMBER_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Size of a number of each type that results of pooling models may have."""


def plain_fields(params: pb.SamplingParams) -> dict[str, Any]:
    """Return the sampling parameters that are set and need no translation."""
    given: dict[str, Any] = {name: getattr(params, name) for name in _SCALARS if params.HasField(name)}
    given.update((name, list(values)) for name in _LISTS if (values := getattr(params, name)))
    return given


def structured_outputs(wire: pb.StructuredOutputs) -> dict[str, Any]:
    """Return the fields of vLLM's StructuredOutputsParams; without a constraint vLLM raises its own error."""
    given: dict[str, Any] = {
        "disable_any_whitespace": wire.disable_any_whitespace,
        "disable_additional_properties": wire.disable_additional_properties,
    }
    if wire.HasField("whitespace_pattern"):
        given["whitespace_pattern"] = wire.whitespace_pattern
    match kind := wire.WhichOneof("constraint"):
        case None:
            pass
        case "json_schema":
            given["json"] = wire.json_schema
        case "choice":
            given["choice"] = list(wire.choice.values)
        case _:
            given[kind] = getattr(wire, kind)
    return given


def repetition_detection(wire: pb.RepetitionDetection) -> dict[str, int]:
    """Return the fields of vLLM's RepetitionDetectionParams."""
    return {name: getattr(wire, name) for name in ("max_pattern_size", "min_pattern_size", "min_count")}


def json_object(text: str, param: str) -> dict[str, Any]:
    """Parse a JSON object of a request. Raises InvalidRequest that names the parameter."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}", param=param) from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be a JSON object.", param=param)
    return value
