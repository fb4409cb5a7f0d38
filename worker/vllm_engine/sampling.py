"""The wire's sampling parameters, exactly as vLLM's."""

import json
from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind, StructuredOutputsParams

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

# Fields with one meaning and one name on both sides; absent means vLLM's default.
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
_MAX_LOGIT_BIAS = 100.0


def to_vllm(params: pb.SamplingParams, n: int) -> SamplingParams:
    """Build vLLM's parameters for a request of n sequences. Raises InvalidRequest or vLLM's own errors."""
    given: dict[str, Any] = {name: getattr(params, name) for name in _SCALARS if params.HasField(name)}
    given.update((name, list(values)) for name in _LISTS if (values := getattr(params, name)))
    if params.logit_bias:
        given["logit_bias"] = {token: _clamped(bias) for token, bias in params.logit_bias.items()}
    if params.prompt_logprob_token_ids:
        given["prompt_logprob_token_ids"] = _scored_ids(params)
    if params.HasField("structured_outputs"):
        given["structured_outputs"] = _structured_outputs(params.structured_outputs)
    if params.HasField("repetition_detection"):
        given["repetition_detection"] = _repetition_detection(params.repetition_detection)
    return SamplingParams(
        n=n,
        max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
        extra_args=_extra_args(params),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        # Only the fallback path reads logprobs back from vLLM's objects: flat ones keep the engine's rows as they are.
        flat_logprobs=True,
        # The parameters belong to this request alone.
        skip_clone=True,
        **given,
    )


def child_params(params: Any, index: int) -> Any:
    """Derive the parameters of one sequence among several, as vLLM does for n > 1."""
    child = params.clone()
    child.n = 1
    if params.seed is not None:
        child.seed = params.seed + index
    return child


def _clamped(bias: float) -> float:
    return min(_MAX_LOGIT_BIAS, max(-_MAX_LOGIT_BIAS, bias))


def _scored_ids(params: pb.SamplingParams) -> list[list[int]]:
    if params.HasField("prompt_logprobs"):
        message = "prompt_logprobs and prompt_logprob_token_ids cannot be combined: a prompt has one matrix of rows."
        raise InvalidRequest(message, param="prompt_logprob_token_ids")
    return [list(row.ids) for row in params.prompt_logprob_token_ids]


def _structured_outputs(wire: pb.StructuredOutputs) -> Any:
    constraint: dict[str, Any] = {}
    match kind := wire.WhichOneof("constraint"):
        case None:
            pass  # vLLM's own error names what is missing
        case "json_schema":
            constraint["json"] = wire.json_schema
        case "choice":
            constraint["choice"] = list(wire.choice.values)
        case _:
            constraint[kind] = getattr(wire, kind)
    return StructuredOutputsParams(
        disable_any_whitespace=wire.disable_any_whitespace,
        disable_additional_properties=wire.disable_additional_properties,
        whitespace_pattern=wire.whitespace_pattern if wire.HasField("whitespace_pattern") else None,
        **constraint,
    )


def _repetition_detection(wire: pb.RepetitionDetection) -> Any:
    return RepetitionDetectionParams(
        max_pattern_size=wire.max_pattern_size, min_pattern_size=wire.min_pattern_size, min_count=wire.min_count
    )


def _extra_args(params: pb.SamplingParams) -> dict[str, Any] | None:
    extra = json_object(params.extra_args_json, "extra_args") if params.HasField("extra_args_json") else {}
    if params.HasField("kv_transfer_params_json"):
        extra["kv_transfer_params"] = json_object(params.kv_transfer_params_json, "kv_transfer_params")
    if params.HasField("ec_transfer_params_json"):
        extra["ec_transfer_params"] = json_object(params.ec_transfer_params_json, "ec_transfer_params")
    return extra or None


def json_object(text: str, param: str) -> dict[str, Any]:
    """Parse a JSON object out of a request. Raises InvalidRequest naming the parameter."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}", param=param) from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be a JSON object.", param=param)
    return value
