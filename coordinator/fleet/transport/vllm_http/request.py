"""Translates a submit to the JSON request of a plain vLLM server; unsupported fields are rejected by name."""

from collections.abc import Iterable
from typing import Any

from tokenwire.errors import InvalidRequest
from tokenwire.protocol.vllm_names import json_object, plain_fields, repetition_detection, structured_outputs
from tokenwire.v1 import inference_pb2 as pb

_UNSUPPORTED = ("logprob_token_ids", "prompt_logprob_token_ids", "prompt_logprob_start", "routed_experts_prompt_start")
UNSUPPORTED = (*_UNSUPPORTED, "lora", "token_types", "mm_processor_kwargs", "mm_payload")
"""What such servers cannot serve of requests, with the names of EngineCapabilities."""
_NOT_SHARED = (*_UNSUPPORTED, "seed")
"""Sampling parameters that requests do not have, or each its own."""
GENERATE, ABORT = "/inference/v1/generate", "/inference/v1/abort_requests"
_MOST_LOGPROBS = 20
"""vLLM's own limit, unless the server was started with another."""


def needs_full_response(submit: pb.Submit) -> bool:
    """Return whether a request needs output that such servers omit from streams."""
    params = submit.sampling_params
    return params.HasField("prompt_logprobs") or params.HasField("kv_transfer_params_json")


def body_of(submit: pb.Submit, model: str) -> dict[str, Any]:
    """Return what the requests for all sequences have in common, except for the prompt. Raises InvalidRequest."""
    body: dict[str, Any] = {
        "model": submit.lora.name or model,
        "sampling_params": _sampling(submit.sampling_params),
        "stream": not needs_full_response(submit),
        "priority": submit.priority,
    }
    if submit.HasField("cache_salt"):
        body["cache_salt"] = submit.cache_salt
    if submit.HasField("reasoning_ended"):
        body["reasoning_ended"] = submit.reasoning_ended
    if submit.HasField("reasoning_parser_kwargs_json"):
        body["reasoning_parser_kwargs"] = json_object(submit.reasoning_parser_kwargs_json, "reasoning_parser_kwargs")
    if submit.media:
        check_media(submit.media)
        body["return_token_ids"] = not body["stream"]  # to know whose the scores of the prompt are
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if submit.sampling_params.HasField(f"{name}_json"):
            body[name] = json_object(getattr(submit.sampling_params, f"{name}_json"), name)
    return body


def check_media(items: Iterable[pb.MediaItem]) -> None:
    """Check that a server takes such media. Raises InvalidRequest."""
    if any(item.modality != "image" for item in items):
        raise InvalidRequest("A plain vLLM server takes pictures only.", param="messages")
    if any(item.HasField("options_json") for item in items):
        raise InvalidRequest(
            "mm_processor_kwargs and media_io_kwargs are not supported by a plain vLLM server.",
            param="mm_processor_kwargs",
        )


def headers_of(submit: pb.Submit) -> dict[str, str]:
    """Return the request headers."""
    headers = dict(submit.trace_headers)
    if submit.HasField("session_id"):
        headers["X-Session-ID"] = submit.session_id
    if submit.HasField("data_parallel_rank"):
        headers["X-data-parallel-rank"] = str(submit.data_parallel_rank)
    return headers


def _sampling(params: pb.SamplingParams) -> dict[str, Any]:
    for name in _UNSUPPORTED:
        if getattr(params, name):
            raise InvalidRequest(f"{name} is not supported by a plain vLLM server.", param=name)
    given = {name: value for name, value in plain_fields(params).items() if name not in _NOT_SHARED}
    if params.HasField("max_tokens"):
        given["max_tokens"] = params.max_tokens
    if params.HasField("logprobs"):
        # Servers count the sampled token among the most likely ones, at any rank: one more leaves none out.
        more = 0 < params.logprobs < _MOST_LOGPROBS
        given["logprobs"] = params.logprobs + more
    if params.logit_bias:
        given["logit_bias"] = {str(token): bias for token, bias in params.logit_bias.items()}
    if params.HasField("structured_outputs"):
        given["structured_outputs"] = structured_outputs(params.structured_outputs)
    if params.HasField("repetition_detection"):
        given["repetition_detection"] = repetition_detection(params.repetition_detection)
    if params.HasField("extra_args_json"):
        given["extra_args"] = json_object(params.extra_args_json, "extra_args")
    return {**given, "n": 1, "detokenize": False}
