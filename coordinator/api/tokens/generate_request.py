"""The body of /inference/v1/generate, and what becomes of it."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from coordinator.api.fields import Headers, StreamOptions
from coordinator.api.sampling import checked_cache_salt, checked_number, hand_on, ids
from coordinator.api.sampling_fields import Int64, SamplingFields
from coordinator.generation import ENGINE_DEFAULTS
from coordinator.request import GenerationRequest, TokenPrompt
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

NOT_SERVED: dict[str, tuple[Any, ...]] = {"features": (None, {}), "content_parts": (None, [])}
"""Of media, which this service does not take."""

SAMPLING_NOT_SERVED: dict[str, tuple[Any, ...]] = {"prompt_logprob_token_ids": (None,)}
ENGINES_OWN = ("output_kind", "detokenize", "flat_logprobs", "skip_clone", "reasoning_effort")
"""Sampling parameters that clients send and that say nothing about ids: how an engine reports, how text was made."""


class SamplingParams(SamplingFields):
    """vLLM's SamplingParams as JSON. What is absent has vLLM's default, not the model's generation config."""

    max_tokens: int | None = None
    stop: str | list[str] | None = None
    bad_words: Annotated[list[str], BeforeValidator(lambda words: words or []), Field(default_factory=list)]
    logprobs: Annotated[int | None, BeforeValidator(checked_number("logprobs"))] = None
    skip_reading_prefix_cache: bool | None = None
    prompt_logprob_start: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    trace_decode_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None

    def to_wire(self) -> pb.SamplingParams:
        """Return what concerns ids. Raises InvalidRequest."""
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and count < -1:
                raise InvalidRequest(f"{name} must be non-negative or -1, got {count}.", param=name)
        wire = self.sampling(self.max_tokens, self.logprobs)
        for name, value in ENGINE_DEFAULTS.items():
            if not wire.HasField(name):
                setattr(wire, name, value)
        if self.skip_reading_prefix_cache is not None:
            wire.skip_reading_prefix_cache = self.skip_reading_prefix_cache
        if self.prompt_logprob_start is not None:
            wire.prompt_logprob_start = self.prompt_logprob_start
        ids(self.trace_decode_token_ids, "trace_decode_token_ids")
        wire.trace_decode_token_ids.extend(self.trace_decode_token_ids or ())
        return wire


class ReasoningParserKwargs(BaseModel):
    """What an engine's reasoning parser has to know of the prompt's rendering."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)


class GenerateRequest(BaseModel):
    """vLLM's request of ids."""

    model_config = ConfigDict(extra="allow")

    token_ids: Annotated[list[int], Field(min_length=1)]
    sampling_params: SamplingParams
    model: str | None = None
    request_id: str | None = None
    output_mode: Literal["tokens", "text"] = "tokens"
    return_token_ids: bool | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: Annotated[str | None, BeforeValidator(checked_cache_salt)] = None
    priority: Int64 = 0
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: ReasoningParserKwargs | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    token_offsets: list[tuple[int, int]] | None = None
    """Of a rendering; nothing is made of them."""

    @property
    def shows_text(self) -> bool:
        """Whether the answer has text beside the ids."""
        return self.output_mode == "text"

    @property
    def shows_usage(self) -> bool:
        """Whether a stream ends with usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def shows_continuous_usage(self) -> bool:
        """Whether every chunk of a stream carries usage; only where it ends with usage."""
        return self.shows_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def to_generation(self, response_id: str, headers: Headers) -> GenerationRequest:
        """Translate into the internal noun. Raises InvalidRequest."""
        params, parser_kwargs = self.sampling_params, self.reasoning_parser_kwargs
        sampling = params.to_wire()
        hand_on(sampling, self.kv_transfer_params, self.ec_transfer_params, params.extra_args)
        return GenerationRequest(
            request_id=response_id,
            model=self.model or "",
            prompts=[TokenPrompt(self.token_ids, "token_ids")],
            sampling=sampling,
            n=1 if params.n is None else params.n,
            text=replace(params.text_rules(), unread=not self.shows_text),
            max_tokens_param=None,
            priority=self.priority,
            cache_salt=self.cache_salt,
            session_id=headers.session_id,
            data_parallel_rank=headers.data_parallel_rank,
            reasoning_ended=self.reasoning_ended,
            reasoning_parser_kwargs=None if parser_kwargs is None else parser_kwargs.model_dump(),
        )
