"""Request fields that several routes share, and what becomes of them."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from coordinator.api.sampling import (
    checked_budget,
    checked_cache_salt,
    checked_number,
    ids,
    int32,
    logit_bias,
    to_json,
)
from coordinator.api.structured import ResponseFormat, StructuredOutputs, structured_outputs
from coordinator.limits import MAX_STOP_STRINGS
from coordinator.request import TextRules, Truncation
from coordinator.settings import ApiSettings
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_INT64_MAX = 2**63 - 1
Int64 = Annotated[int, Field(ge=-_INT64_MAX - 1, le=_INT64_MAX)]
UInt32 = Annotated[int, Field(ge=0, le=2**32 - 1)]
StopStrings = str | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS)] | None

# Fields that vLLM knows and tokenwire does not serve, with the values that change nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "use_beam_search": (None, False),
    "best_of": (None, 1),
}


class StreamOptions(BaseModel):
    """OpenAI's stream_options."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class RepetitionDetection(BaseModel):
    """vLLM's repetition_detection: ends a sequence that repeats itself."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0

    def to_wire(self) -> pb.RepetitionDetection:
        """Return what the wire carries. Raises InvalidRequest."""
        most, least, count = self.max_pattern_size, self.min_pattern_size, self.min_count
        if not 0 <= least <= most < 2**32:
            raise InvalidRequest(
                "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= max_pattern_size. "
                "Set both to 0 to disable repetitive pattern detection.",
                param="repetition_detection",
            )
        if most and not 2 <= count < 2**32:
            raise InvalidRequest(
                "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not wish to detect "
                "repetitive patterns, set max_pattern_size to 0.",
                param="repetition_detection",
            )
        return pb.RepetitionDetection(max_pattern_size=most, min_pattern_size=least, min_count=max(count, 0))


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
    bad_words: list[str] = []
    prompt_logprobs: Annotated[int | None, BeforeValidator(checked_number("prompt_logprobs"))] = None
    logprob_token_ids: list[int] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=_INT64_MAX)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    repetition_detection: RepetitionDetection | None = None
    thinking_token_budget: Annotated[int | None, BeforeValidator(checked_budget)] = None
    watermarking: bool | None = None
    routed_experts_prompt_start: UInt32 = 0
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
    session_id: str | None = None
    request_id: str | None = None
    user: str | None = None
    # Of beam search, of rendering only, or of media: nothing but their types is checked.
    use_beam_search: bool = False
    length_penalty: float = 1.0
    return_token_offsets: bool | None = None
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None

    def shows_usage(self, api: ApiSettings) -> bool:
        """Tell whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage) or api.force_include_usage

    def shows_continuous_usage(self, api: ApiSettings) -> bool:
        """Tell whether every chunk of a stream carries usage; as in vLLM, only where it ends with usage."""
        return self.shows_usage(api) and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def text_rules(self) -> TextRules:
        """Return what concerns text and never reaches a worker."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return TextRules(
            stop,
            self.include_stop_str_in_output,
            self.skip_special_tokens,
            self.skip_special_tokens or self.spaces_between_special_tokens,
        )

    def truncation(self) -> Truncation | None:
        """Return how to cut a long prompt, if at all."""
        if self.truncate_prompt_tokens is None:
            return None
        return Truncation(self.truncate_prompt_tokens, self.truncation_side)

    def check_logprobs(self) -> None:
        """Check what concerns log-probabilities of prompts. Raises InvalidRequest."""
        count = self.prompt_logprobs
        if count is not None and self.stream and (count > 0 or count == -1):
            raise InvalidRequest("`prompt_logprobs` are not available when `stream=True`.", param="prompt_logprobs")
        if count is not None and count < -1:
            raise InvalidRequest("`prompt_logprobs` must be a positive value or -1.", param="prompt_logprobs")

    def sampling(
        self, max_tokens: int | None, logprobs: int | None = None, prompt_logprobs: int | None = None
    ) -> pb.SamplingParams:
        """Return what concerns ids. Raises InvalidRequest for numbers that no engine could take.

        logprobs: likeliest tokens to report with each token, None for no report; prompt_logprobs: with each prompt
        token, where the request does not say so itself.
        """
        if max_tokens is not None and max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(
                f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.", param="min_tokens"
            )
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
            # vLLM takes -1 for no seed.
            seed=None if self.seed == -1 else self.seed,
            stop_token_ids=ids(self.stop_token_ids, "stop_token_ids"),
            ignore_eos=self.ignore_eos,
            max_tokens=min(max_tokens, 2**32 - 1) if max_tokens is not None else None,
            min_tokens=min(self.min_tokens, 2**32 - 1),
            logprobs=None if self.logprob_token_ids else int32(logprobs, "logprobs"),
            prompt_logprobs=int32(wanted, "prompt_logprobs"),
            logprob_token_ids=ids(self.logprob_token_ids, "logprob_token_ids"),
            logit_bias=logit_bias(self.logit_bias),
            allowed_token_ids=ids(self.allowed_token_ids, "allowed_token_ids"),
            bad_words=self.bad_words,
            structured_outputs=structured_outputs(self.structured_outputs, self.response_format),
            thinking_token_budget=self.thinking_token_budget,
            repetition_detection=self.repetition_detection.to_wire() if self.repetition_detection else None,
            watermarking=self.watermarking,
            routed_experts_prompt_start=self.routed_experts_prompt_start or None,
            kv_transfer_params_json=to_json(self.kv_transfer_params),
            ec_transfer_params_json=to_json(self.ec_transfer_params),
            extra_args_json=to_json(self.vllm_xargs),
        )


def check_stream_options(body: SamplingFields) -> None:
    """Check that stream options come with a stream. Raises InvalidRequest."""
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("Stream options can only be defined when `stream=True`.", param="stream_options")


def request_id(prefix: str, body: SamplingFields, header: str | None) -> str:
    """Return the id of a request: the X-Request-Id header's, the body's, or a new one."""
    return f"{prefix}{header or body.request_id or uuid.uuid4().hex}"


class Headers:
    """What a request's headers say beside its body."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.request_id = headers.get("x-request-id")
        self.session_id = headers.get("x-session-id")
        self._priority = headers.get("x-vllm-priority")
        self._rank = headers.get("x-data-parallel-rank")

    def priority(self, body: int) -> int:
        """Return the header's priority, or else the body's. One that is no number counts as absent, as in vLLM."""
        return _number(self._priority, body)

    @property
    def data_parallel_rank(self) -> int | None:
        """The rank that the request is to run on."""
        rank = _number(self._rank, -1)
        return rank if rank >= 0 else None

    def session(self, body: SamplingFields) -> str | None:
        """Return the session: the body's, the header's, or that of vllm_xargs."""
        extra = (body.vllm_xargs or {}).get("session_id")
        return body.session_id or self.session_id or (extra if isinstance(extra, str) and extra else None)


def _number(text: str | None, otherwise: int) -> int:
    try:
        value = int(text) if text is not None else otherwise
    except ValueError:
        return otherwise
    return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else otherwise
