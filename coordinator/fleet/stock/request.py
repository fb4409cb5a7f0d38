"""A submit, as the JSON that a stock server takes; what it cannot do is refused by name."""

import json
from collections.abc import Mapping
from typing import Any

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
    "ignore_eos",
    "max_tokens",
    "min_tokens",
    "prompt_logprobs",
    "thinking_token_budget",
    "watermarking",
    "skip_reading_prefix_cache",
)
_LISTS = ("stop_token_ids", "allowed_token_ids", "bad_words", "trace_decode_token_ids")
_NOT_THERE = ("logprob_token_ids", "prompt_logprob_token_ids", "prompt_logprob_start", "routed_experts_prompt_start")
_MOST_LOGPROBS = 20
"""vLLM's own limit, unless the server was started with another."""


def comes_whole(submit: pb.Submit) -> bool:
    """Tell whether a request asks for what such servers leave out of streams."""
    params = submit.sampling_params
    return params.HasField("prompt_logprobs") or params.HasField("kv_transfer_params_json")


def body_of(submit: pb.Submit, request_id: str, index: int, model: str) -> dict[str, Any]:
    """Return the request for one sequence. Raises InvalidRequest."""
    body: dict[str, Any] = {
        "request_id": request_id,
        "model": submit.lora.name or model,
        "token_ids": list(submit.prompt_token_ids),
        "sampling_params": _sampling(submit.sampling_params, index),
        "stream": not comes_whole(submit),
        "priority": submit.priority,
    }
    if submit.HasField("cache_salt"):
        body["cache_salt"] = submit.cache_salt
    if submit.HasField("reasoning_ended"):
        body["reasoning_ended"] = submit.reasoning_ended
    if submit.HasField("reasoning_parser_kwargs_json"):
        body["reasoning_parser_kwargs"] = _object(submit.reasoning_parser_kwargs_json, "reasoning_parser_kwargs")
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if submit.sampling_params.HasField(f"{name}_json"):
            body[name] = _object(getattr(submit.sampling_params, f"{name}_json"), name)
    return body


def headers_of(submit: pb.Submit) -> dict[str, str]:
    """Return what goes beside the body."""
    headers = dict(submit.trace_headers)
    if submit.HasField("session_id"):
        headers["X-Session-ID"] = submit.session_id
    if submit.HasField("data_parallel_rank"):
        headers["X-data-parallel-rank"] = str(submit.data_parallel_rank)
    return headers


def _sampling(params: pb.SamplingParams, index: int) -> dict[str, Any]:
    for name in _NOT_THERE:
        if getattr(params, name):
            raise InvalidRequest(f"{name} is not possible on a stock vLLM server.", param=name)
    given: dict[str, Any] = {name: getattr(params, name) for name in _SCALARS if params.HasField(name)}
    given.update((name, list(values)) for name in _LISTS if (values := getattr(params, name)))
    if params.HasField("seed"):
        given["seed"] = params.seed + index
    if params.HasField("logprobs"):
        # Servers count the sampled token among the likeliest, wherever it stands: with one more none is missing.
        more = 0 < params.logprobs < _MOST_LOGPROBS
        given["logprobs"] = params.logprobs + more
    if params.logit_bias:
        given["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    if params.HasField("structured_outputs"):
        given["structured_outputs"] = _structured_outputs(params.structured_outputs)
    if params.HasField("repetition_detection"):
        wire = params.repetition_detection
        names = ("max_pattern_size", "min_pattern_size", "min_count")
        given["repetition_detection"] = {name: getattr(wire, name) for name in names}
    if params.HasField("extra_args_json"):
        given["extra_args"] = _object(params.extra_args_json, "extra_args")
    return {**given, "n": 1, "detokenize": False}


def _structured_outputs(wire: pb.StructuredOutputs) -> dict[str, Any]:
    given: dict[str, Any] = {
        "disable_any_whitespace": wire.disable_any_whitespace,
        "disable_additional_properties": wire.disable_additional_properties,
    }
    if wire.HasField("whitespace_pattern"):
        given["whitespace_pattern"] = wire.whitespace_pattern
    kind = wire.WhichOneof("constraint")
    if kind == "json_schema":
        given["json"] = wire.json_schema
    elif kind == "choice":
        given["choice"] = list(wire.choice.values)
    elif kind is not None:
        given[kind] = getattr(wire, kind)
    return given


def _object(text: str, param: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{param} is not valid JSON: {error}", param=param) from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"{param} must be a JSON object.", param=param)
    return value
