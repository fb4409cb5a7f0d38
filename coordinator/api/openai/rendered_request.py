"""A prepared request as vLLM's GenerateRequest, which any server of /inference/v1/generate takes."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.json_pieces import JsonPieces, long_object, slices
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.media.content import MediaFeatures
from tokenwire.coordinator.text.tokenizer import INLINE_CHARS, ModelTokenizer
from tokenwire.process.threads import in_thread
from tokenwire.v1 import inference_pb2 as pb

_GREEDY = 1e-5
_LEAST_TEMPERATURE = 0.01
_DELTAS, _WHOLE = 1, 2
"""vLLM's RequestOutputKind."""
_IF_SET = ("seed", "logprobs", "prompt_logprobs", "thinking_token_budget", "watermarking", "prompt_logprob_start")
_IF_TRUE = ("ignore_eos", "min_tokens", "routed_experts_prompt_start", "top_k")
_LISTS = ("logprob_token_ids", "allowed_token_ids", "trace_decode_token_ids")
_CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


async def generate_request(
    body: RequestFields, prepared: PreparedRequest, position: int, features: MediaFeatures | None = None
) -> Iterator[bytes]:
    """Return the GenerateRequest of one of the prompts as JSON, in parts."""
    request, prompt = prepared.request, prepared.prompts[position]
    streams = bool(body.stream)
    offsets = await _offsets(prepared, position) if body.return_token_offsets else None
    kwargs = request.reasoning_parser_kwargs
    fields: dict[str, Any] = {
        "request_id": prepared.id_of(position),
        "features": None if features is None else JsonPieces(lambda: iter((features.json,))),
        "content_parts": None,
        "sampling_params": sampling_params(body, prepared, position),
        "model": body.model,
        "reasoning_ended": prepared.reasoning_ended,
        "reasoning_parser_kwargs": None if kwargs is None else dict(kwargs),
        "return_token_ids": None,
        "output_mode": "tokens",
        "stream": streams,
        "stream_options": body.stream_options.model_dump() if streams and body.stream_options else None,
        "cache_salt": request.cache_salt,
        "priority": request.priority,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }
    if request.weights is not None:  # vLLM has no such fields
        limits = {"min_weight_version": request.weights.min_version, "max_weight_lag": request.weights.max_lag}
        fields |= {name: value for name, value in limits.items() if value is not None}
    token_offsets = None if offsets is None else slices(offsets)
    return long_object(fields, {"token_ids": slices(prompt.token_ids), "token_offsets": token_offsets})


def sampling_params(body: RequestFields, prepared: PreparedRequest, position: int) -> dict[str, Any]:
    """Return vLLM's SamplingParams as JSON, with the model's defaults, and without most fields that have vLLM's.

    The maximum of tokens is always in it: without one, a server of this request takes the rest of the context.
    """
    wire, text = prepared.sampling, prepared.request.text
    temperature = wire.temperature
    params: dict[str, Any] = {
        "presence_penalty": wire.presence_penalty,
        "frequency_penalty": wire.frequency_penalty,
        "repetition_penalty": wire.repetition_penalty,
        "temperature": max(temperature, _LEAST_TEMPERATURE) if temperature > 0 else temperature,
        "stop": list(text.stop),
        "stop_token_ids": list(wire.stop_token_ids),
        "max_tokens": prepared.max_tokens[position],
        "bad_words": list(dict.fromkeys(wire.bad_words)),
        "output_kind": _DELTAS if body.stream else _WHOLE,
        "skip_clone": True,
        "skip_reading_prefix_cache": wire.skip_reading_prefix_cache or wire.HasField("prompt_logprobs"),
    }
    if prepared.request.n != 1:
        params["n"] = prepared.request.n
    if temperature >= _GREEDY:
        params |= {"top_p": wire.top_p, "min_p": wire.min_p}
    params |= {name: getattr(wire, name) for name in _IF_SET if wire.HasField(name)}
    params |= {name: getattr(wire, name) for name in _IF_TRUE if getattr(wire, name)}
    params |= {name: list(getattr(wire, name)) for name in _LISTS if getattr(wire, name)}
    if temperature < _GREEDY:
        params.pop("top_k", None)
    params |= _text_params(body, prepared) | _objects(wire)
    return params


def _text_params(body: RequestFields, prepared: PreparedRequest) -> dict[str, Any]:
    text, plan = prepared.request.text, prepared.request.plan
    params: dict[str, Any] = {}
    if not text.skip_special_tokens:
        params["skip_special_tokens"] = False
    if not (body if plan is None else plan).spaces_between_special_tokens:
        params["spaces_between_special_tokens"] = False
    if text.include_stop_str_in_output:
        params["include_stop_str_in_output"] = True
    elif held := max(map(len, text.stop), default=1) - 1:
        params["output_text_buffer_length"] = held
    if body.stream_interval is not None:
        params["stream_interval"] = body.stream_interval
    return params


def _objects(wire: pb.SamplingParams) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if wire.logit_bias:
        params["logit_bias"] = {str(token_id): bias for token_id, bias in wire.logit_bias.items()}
    if wire.HasField("structured_outputs"):
        params["structured_outputs"] = _structured_outputs(wire.structured_outputs)
    if wire.HasField("repetition_detection"):
        names = ("max_pattern_size", "min_pattern_size", "min_count")
        params["repetition_detection"] = {name: getattr(wire.repetition_detection, name) for name in names}
    if extra := _extra_args(wire):
        params["extra_args"] = extra
    return params


def _schema(text: str) -> Any:
    """Return a schema; text that is no JSON is left for the engine to reject."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _structured_outputs(wire: pb.StructuredOutputs) -> dict[str, Any]:
    params: dict[str, Any] = dict.fromkeys(_CONSTRAINTS)
    match kind := wire.WhichOneof("constraint"):
        case "json_schema":
            params["json"] = _schema(wire.json_schema)
        case "choice":
            params["choice"] = list(wire.choice.values)
        case str():
            params[kind] = getattr(wire, kind)
    return params | {
        "disable_any_whitespace": wire.disable_any_whitespace,
        "disable_additional_properties": wire.disable_additional_properties,
        "whitespace_pattern": wire.whitespace_pattern or None,
    }


def _extra_args(wire: pb.SamplingParams) -> dict[str, Any]:
    """Return the engine's own arguments, among which vLLM takes transfers."""
    extra: dict[str, Any] = json.loads(wire.extra_args_json) if wire.extra_args_json else {}
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if wire.HasField(f"{name}_json"):
            extra[name] = json.loads(getattr(wire, f"{name}_json"))
    return extra


async def _offsets(prepared: PreparedRequest, position: int) -> Sequence[tuple[int, int]] | None:
    """Return the characters of each id in the prompt's text; None for ids that are not all of a text."""
    prompt, source = prepared.prompts[position], prepared.request.prompts[position]
    if prompt.text is None or not prompt.is_tokenized:
        return None
    special = getattr(source, "add_special_tokens", False)
    encode = partial(_encoded_offsets, prepared.model.tokenizer, prompt.text, special, prompt.token_ids)
    return encode() if len(prompt.text) <= INLINE_CHARS else await in_thread(encode)


def _encoded_offsets(
    tokenizer: ModelTokenizer, text: str, add_special_tokens: bool, token_ids: Sequence[int]
) -> Sequence[tuple[int, int]] | None:
    (encoding,) = tokenizer.backend.encode_batch([text], add_special_tokens=add_special_tokens)
    count, offsets = len(token_ids), encoding.offsets
    if encoding.ids[-count:] == list(token_ids):  # all of them, or cut on the left
        return offsets[-count:]
    return offsets[:count] if encoding.ids[:count] == list(token_ids) else None
