"""Request fields shared by several routes: sampling, stop conditions, and what a response has."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from tokenwire.coordinator.api.fields.structured_outputs import ResponseFormat, StructuredOutputs, requested_grammar
from tokenwire.coordinator.api.fields.weight_limits import LIMIT_NAMES, WeightLimitFields, named_limits
from tokenwire.coordinator.api.fields.wire_values import (
    UINT32_MAX,
    RepetitionDetection,
    checked_biases,
    checked_budget,
    checked_cache_salt,
    checked_number,
    set_engine_fields,
)
from tokenwire.coordinator.generation.limits import MAX_IDS, MAX_STOP_STRINGS, out_of_vocabulary
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.types import Truncation
from tokenwire.errors import InvalidRequest
from tokenwire.protocol.seeds import NO_SEED
from tokenwire.protocol.weight_limits import WeightLimits
from tokenwire.v1 import inference_pb2 as pb

INT64_MAX = 2**63 - 1
Int64 = Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)]
UInt32 = Annotated[int, Field(ge=0, le=UINT32_MAX)]
StopStrings = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None

MAX_IDENTIFIER_CHARS = 512
"""OpenAI's limit on request ids from clients."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters of ASCII and Latin-1, and other line separators."""


def checked_identifier(value: str, param: str) -> str:
    """Return an identifier that is safe in responses, logs and traces. Raises InvalidRequest."""
    if len(value) > MAX_IDENTIFIER_CHARS:
        raise InvalidRequest(f"`{param}` has {len(value)} characters, more than {MAX_IDENTIFIER_CHARS}.", param=param)
    if _CONTROL.search(value):
        raise InvalidRequest(f"`{param}` must not contain control characters or line separators.", param=param)
    return value


def _checked_field(value: str, info: ValidationInfo) -> str:
    return checked_identifier(value, info.field_name or "")


Identifier = Annotated[str, AfterValidator(_checked_field)]
"""The id of a request or conversation, chosen by its client: bounded, because every chunk and choice repeats it."""


class SamplingFields(RequestModel):
    """Sampling and stop conditions, with vLLM's names."""

    model_config = ConfigDict(extra="allow")

    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    n: int = 1
    seed: Int64 | None = None
    stop: StopStrings = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    logit_bias: Annotated[dict[str, float] | None, BeforeValidator(checked_biases)] = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = Field(default_factory=list)
    prompt_logprobs: Annotated[int | None, BeforeValidator(checked_number("prompt_logprobs"))] = None
    logprob_token_ids: list[int] | None = None
    structured_outputs: StructuredOutputs | None = None
    repetition_detection: RepetitionDetection | None = None
    thinking_token_budget: Annotated[int | None, BeforeValidator(checked_budget)] = None
    watermarking: bool | None = None
    routed_experts_prompt_start: UInt32 = 0

    def text_rules(self) -> TextRules:
        """Return the options of text, which workers do not need."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return TextRules(
            stop,
            self.include_stop_str_in_output,
            self.skip_special_tokens,
            self.skip_special_tokens or self.spaces_between_special_tokens,
        )

    def grammar(self) -> pb.StructuredOutputs | None:
        """Return the grammar of the output, if any. Raises InvalidRequest."""
        return requested_grammar(self.structured_outputs, None)

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """Return the sampling parameters. Raises InvalidRequest for numbers out of range.

        logprobs: number of most likely tokens to report with each token; None: no report. prompt_logprobs: the same for
        prompt tokens, if the request does not set it itself.
        """
        self._check_lengths(max_tokens)
        if self.allowed_token_ids == []:
            raise InvalidRequest("allowed_token_ids is not None and empty!", param="allowed_token_ids")
        wanted = prompt_logprobs if self.prompt_logprobs is None else self.prompt_logprobs
        return pb.SamplingParams(
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=int32(self.top_k, "top_k"),
            min_p=self.min_p,
            seed=None if self.seed == NO_SEED else self.seed,
            stop_token_ids=self.stop_token_ids and ids(self.stop_token_ids, "stop_token_ids"),
            ignore_eos=self.ignore_eos,
            max_tokens=min(max_tokens, 2**32 - 1) if max_tokens is not None else None,
            min_tokens=min(self.min_tokens, 2**32 - 1),
            logprobs=None if self.logprob_token_ids else int32(logprobs, "logprobs"),
            prompt_logprobs=int32(wanted, "prompt_logprobs"),
            logprob_token_ids=self.logprob_token_ids and ids(self.logprob_token_ids, "logprob_token_ids"),
            logit_bias=logit_bias(self.logit_bias) if self.logit_bias else None,
            allowed_token_ids=self.allowed_token_ids and ids(self.allowed_token_ids, "allowed_token_ids"),
            bad_words=self.bad_words,
            structured_outputs=self.grammar(),
            thinking_token_budget=self.thinking_token_budget,
            repetition_detection=self.repetition_detection.to_wire() if self.repetition_detection else None,
            watermarking=self.watermarking,  # type: ignore[arg-type]  # None is unset
            routed_experts_prompt_start=self.routed_experts_prompt_start or None,
        )

    def _check_lengths(self, max_tokens: int | None) -> None:
        """Raise InvalidRequest for limits of a reply's length that no reply has."""
        if max_tokens is not None and max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(
                f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.", param="min_tokens"
            )


_LARGE = frozenset({"allowed_token_ids", "logit_bias", "vllm_xargs"})
"""Fields that may take megabytes."""


class StreamOptions(RequestModel):
    """OpenAI's stream_options."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class RequestFields(SamplingFields, WeightLimitFields):
    """Fields of sampling and of the response common to chat and completions."""

    model: str | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=INT64_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    response_format: ResponseFormat | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: Annotated[int, Field(ge=1)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Int64 = 0
    cache_salt: Annotated[str | None, BeforeValidator(checked_cache_salt)] = None
    session_id: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    request_id: Identifier = ""
    user: str | None = None
    # Of beam search or of rendering: elsewhere, only their types are checked.
    use_beam_search: bool = False
    length_penalty: float = 1.0
    return_token_offsets: bool | None = None
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None

    @property
    def features_payload(self) -> Literal["tensors", "none"]:
        """What a rendered request has of its media: `mm_payload`, or what the older name of "none" says."""
        is_given = "mm_payload" in self.model_fields_set
        return self.mm_payload if is_given or self.return_mm_kwargs is not False else "none"

    def shows_usage(self, api: ApiSettings) -> bool:
        """Return whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage) or api.force_include_usage

    def shows_continuous_usage(self, api: ApiSettings) -> bool:
        """Return whether every chunk of a stream has usage; as in vLLM, only if it ends with usage."""
        return self.shows_usage(api) and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def weight_limits(self, defaults: WeightLimits | None) -> WeightLimits | None:
        """Return the body's own limits, or those of vllm_xargs, or the defaults. Raises InvalidRequest."""
        if self.vllm_xargs:
            extra = named_limits(self.vllm_xargs, "vllm_xargs.")
            defaults = defaults if extra is None else extra.over(defaults)
        is_limited = self.min_weight_version is not None or self.max_weight_lag is not None
        return super().weight_limits(defaults) if is_limited else defaults

    def _engine_xargs(self) -> dict[str, Any]:
        """Return the arguments of vllm_xargs that are the engine's."""
        return {name: value for name, value in (self.vllm_xargs or {}).items() if name not in LIMIT_NAMES}

    def truncation(self) -> Truncation | None:
        """Return how a long prompt is truncated; None: not at all."""
        if self.truncate_prompt_tokens is None:
            return None
        return Truncation(self.truncate_prompt_tokens, self.truncation_side)

    def check_logprobs(self) -> None:
        """Check the fields of prompt log-probabilities. Raises InvalidRequest."""
        count = self.prompt_logprobs
        if count is not None and self.stream and (count > 0 or count == -1):
            raise InvalidRequest("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
        if count is not None and count < -1:
            raise InvalidRequest("`prompt_logprobs` must be a positive value or -1.", param="prompt_logprobs")

    def grammar(self) -> pb.StructuredOutputs | None:
        """Return the requested grammar, if any; response_format takes precedence. Raises InvalidRequest."""
        if self.structured_outputs is None and self.response_format is None:
            return None
        return requested_grammar(self.structured_outputs, self.response_format)

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """Return the sampling parameters with the engine's own fields; see SamplingFields.sampling."""
        sampling = super().sampling(max_tokens, logprobs, prompt_logprobs)
        if self.kv_transfer_params or self.ec_transfer_params or self.vllm_xargs:
            set_engine_fields(sampling, self.kv_transfer_params, self.ec_transfer_params, self._engine_xargs())
        return sampling

    def drop_copied(self) -> None:
        """Drop what may be large and is in the sampling parameters: a body is kept until its reply has been sent."""
        for name in _LARGE & self.model_fields_set:
            setattr(self, name, None)

    def engine_fields(self) -> pb.SamplingParams:
        """Return sampling parameters with nothing but the fields passed through to the engine."""
        sampling = pb.SamplingParams()
        set_engine_fields(sampling, self.kv_transfer_params, self.ec_transfer_params, self._engine_xargs())
        return sampling


def int32(value: int | None, param: str) -> int | None:
    """Return a number that fits in the protocol. Raises InvalidRequest."""
    if value is not None and not -(2**31) <= value < 2**31:
        raise InvalidRequest(f"{param} is out of range: {value}", param=param)
    return value


def ids(token_ids: list[int] | None, param: str) -> list[int]:
    """Return ids without duplicates. Raises InvalidRequest for values that cannot be ids."""
    if token_ids and len(token_ids) > MAX_IDS:  # before each is looked at
        raise InvalidRequest(f"{param} has {len(token_ids)} entries, more than {MAX_IDS}.", param=param)
    for token_id in token_ids or ():
        if not 0 <= token_id < 2**32:
            raise out_of_vocabulary(token_id, param)
    return list(dict.fromkeys(token_ids or ()))


def logit_bias(bias: dict[str, float] | None) -> dict[int, float]:
    """Return biases by id, clamped to the allowed range. Raises InvalidRequest."""
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
    ids(list(resolved), "logit_bias")
    return resolved


def check_stream_options(body: RequestFields) -> None:
    """Check that stream options are set only for streams. Raises InvalidRequest."""
    if body.stream_options is not None and body.stream_options.model_fields_set and not body.stream:
        raise InvalidRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
