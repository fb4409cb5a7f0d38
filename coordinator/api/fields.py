"""Request fields that several routes share, and what becomes of them."""

import json
import logging
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from coordinator.limits import MAX_STOP_STRINGS
from coordinator.request import TextRules
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)

_INT64_MAX = 2**63 - 1
Int64 = Annotated[int, Field(ge=-_INT64_MAX - 1, le=_INT64_MAX)]
StopStrings = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None

# Fields that vLLM knows and tokenwire does not serve yet, with the values that change nothing.
_NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (None, False),
    "length_penalty": (None, 1.0),
    "truncate_prompt_tokens": (None,),
    "truncation_side": (None,),
    "prompt_logprobs": (None,),
    "logprob_token_ids": (None, []),
    "watermarking": (None,),
    "thinking_token_budget": (None,),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,),
    "return_tokens_as_token_ids": (None, False),
    "routed_experts_prompt_start": (None, 0),
    "kv_transfer_params": (None,),
    "ec_transfer_params": (None,),
    "vllm_xargs": (None,),
    "repetition_detection": (None,),
    "stream_interval": (None, 1),
    "echo": (None, False),
}
# Fields that change nothing about the answer: accepted, as vLLM and OpenAI do.
_HARMLESS = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)


class StreamOptions(BaseModel):
    """OpenAI's stream_options."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class SamplingFields(BaseModel):
    """How to sample and how to answer: the same for chat and completions."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: int | None = 1
    seed: Int64 | None = None
    stop: StopStrings = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    priority: Int64 = 0
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    session_id: str | None = None
    request_id: str | None = None
    user: str | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk of a stream carries usage; as in vLLM, only together with include_usage."""
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def text_rules(self) -> TextRules:
        """Return what concerns text and never reaches a worker."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return TextRules(
            stop,
            self.include_stop_str_in_output,
            self.skip_special_tokens,
            self.skip_special_tokens or self.spaces_between_special_tokens,
        )

    def sampling(self, max_tokens: int | None) -> pb.SamplingParams:
        """Return what concerns ids. Raises InvalidRequest for numbers that no engine could take."""
        if max_tokens is not None and max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(
                f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.", param="min_tokens"
            )
        if self.cache_salt is not None:
            _check_cache_salt(self.cache_salt)
        return pb.SamplingParams(
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=_int32(self.top_k, "top_k"),
            min_p=self.min_p,
            # vLLM takes -1 for no seed.
            seed=None if self.seed == -1 else self.seed,
            stop_token_ids=_ids(self.stop_token_ids, "stop_token_ids"),
            ignore_eos=self.ignore_eos,
            max_tokens=min(max_tokens, 2**32 - 1) if max_tokens is not None else None,
            min_tokens=min(self.min_tokens, 2**32 - 1),
            logit_bias=_logit_bias(self.logit_bias),
            allowed_token_ids=_ids(self.allowed_token_ids, "allowed_token_ids"),
            bad_words=self.bad_words,
        )


class FieldGate:
    """Refuses known fields that are not served, and names unknown ones once in the log."""

    def __init__(self, route_fields: Mapping[str, tuple[Any, ...]]) -> None:
        self._not_served = {**_NOT_SERVED, **route_fields}
        self._named: set[str] = set()

    def check(self, body: SamplingFields) -> None:
        """Check the fields that the body's model does not declare. Raises InvalidRequest."""
        for name, value in (body.model_extra or {}).items():
            if name in self._not_served:
                if value not in self._not_served[name]:
                    raise InvalidRequest(f"`{name}` is not supported yet.", param=name)
            elif name not in _HARMLESS and name not in self._named and len(self._named) < 100:
                self._named.add(name)
                log.warning("requests carry the unknown field %s: ignored", json.dumps(name[:100]))
        if body.stream_options is not None and not body.stream:
            raise InvalidRequest("Stream options can only be defined when `stream=True`.", param="stream_options")


def request_id(prefix: str, body: SamplingFields, header: str | None) -> str:
    """Return the id of a request: the X-Request-Id header's, the body's, or a new one."""
    return f"{prefix}-{header or body.request_id or uuid.uuid4().hex}"


def _check_cache_salt(salt: str) -> None:
    if len(salt) > 128 or any(character in salt for character in "@/\\\0"):
        raise InvalidRequest(
            "cache_salt must have at most 128 characters, without '@', '/', '\\' and NUL.", param="cache_salt"
        )


def _int32(value: int | None, param: str) -> int | None:
    if value is not None and not -(2**31) <= value < 2**31:
        raise InvalidRequest(f"{param} is out of range: {value}", param=param)
    return value


def _ids(token_ids: list[int] | None, param: str) -> list[int]:
    for token_id in token_ids or ():
        if not 0 <= token_id < 2**32:
            raise InvalidRequest(f"Token id {token_id} is out of vocabulary", param=param)
    return list(dict.fromkeys(token_ids or ()))


def _logit_bias(bias: dict[str, float] | None) -> dict[int, float]:
    resolved: dict[int, float] = {}
    invalid: list[str] = []
    for key, value in (bias or {}).items():
        try:
            resolved[int(key)] = min(100.0, max(-100.0, value))
        except ValueError:
            invalid.append(key)
    if invalid:
        raise InvalidRequest(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {invalid!r}",
            param="logit_bias",
        )
    _ids(list(resolved), "logit_bias")
    return resolved
