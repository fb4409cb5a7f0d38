"""Converts the protocol's sampling parameters to vLLM's."""

from typing import Any

import vllm
from vllm import SamplingParams
from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind, StructuredOutputsParams

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.seeds import sequence_seed
from tokenwire.protocol.vllm_names import json_object, plain_fields, repetition_detection, structured_outputs
from tokenwire.v1 import inference_pb2 as pb

_MAX_LOGIT_BIAS = 100.0
_KNOWN = frozenset(SamplingParams.__struct_fields__)
"""Minor versions of vLLM add parameters."""
_IN_EXTRA_ARGS = frozenset({"kv_transfer_params", "ec_transfer_params"})


def to_vllm(params: pb.SamplingParams, n: int) -> SamplingParams:
    """Build vLLM's parameters for a request of n sequences. Raises InvalidRequest or vLLM's own errors."""
    given = plain_fields(params)
    if params.logit_bias:
        given["logit_bias"] = {token: _clamped(bias) for token, bias in params.logit_bias.items()}
    if params.prompt_logprob_token_ids:
        given["prompt_logprob_token_ids"] = _scored_ids(params)
    if params.HasField("structured_outputs"):
        given["structured_outputs"] = StructuredOutputsParams(**structured_outputs(params.structured_outputs))
    if params.HasField("repetition_detection"):
        given["repetition_detection"] = RepetitionDetectionParams(**repetition_detection(params.repetition_detection))
    if unknown := sorted(given.keys() - _KNOWN):
        message = f"The vLLM of this worker, {vllm.__version__}, does not support {', '.join(unknown)}."
        raise InvalidRequest(message, param=unknown[0])
    return SamplingParams(
        n=n,
        max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
        extra_args=_extra_args(params),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        # Only GenerateDriver reads logprobs from vLLM's objects: flat ones keep the engine's rows unchanged.
        flat_logprobs=True,
        # Only this request uses the parameters.
        skip_clone=True,
        **given,
    )


def unsupported_params() -> list[str]:
    """Return the protocol's parameters that this vLLM does not have."""
    names = {name.removesuffix("_json") for name in pb.SamplingParams.DESCRIPTOR.fields_by_name}
    return sorted(names - _KNOWN - _IN_EXTRA_ARGS)


def child_params(params: Any, index: int) -> Any:
    """Return the parameters of one of several sequences, as vLLM derives them for n > 1."""
    child = params.clone()
    child.n = 1
    if params.seed is not None:
        child.seed = sequence_seed(params.seed, index)
    return child


def scored_ids(params: Any) -> Any:
    """Return the ids whose log-probabilities a request wants at each position of its prompt, None without any."""
    return getattr(params, "prompt_logprob_token_ids", None)


def _clamped(bias: float) -> float:
    return min(_MAX_LOGIT_BIAS, max(-_MAX_LOGIT_BIAS, bias))


def _scored_ids(params: pb.SamplingParams) -> list[list[int]]:
    if params.HasField("prompt_logprobs"):
        message = "prompt_logprobs and prompt_logprob_token_ids cannot be combined: a prompt has one matrix of rows."
        raise InvalidRequest(message, param="prompt_logprob_token_ids")
    return [list(row.ids) for row in params.prompt_logprob_token_ids]


def _extra_args(params: pb.SamplingParams) -> dict[str, Any] | None:
    extra = json_object(params.extra_args_json, "extra_args") if params.HasField("extra_args_json") else {}
    if params.HasField("kv_transfer_params_json"):
        extra["kv_transfer_params"] = json_object(params.kv_transfer_params_json, "kv_transfer_params")
    if params.HasField("ec_transfer_params_json"):
        extra["ec_transfer_params"] = json_object(params.ec_transfer_params_json, "ec_transfer_params")
    return extra or None
