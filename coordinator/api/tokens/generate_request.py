"""The body of /inference/v1/generate, and its translation to a GenerationRequest."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import Identifier, Int64, StreamOptions
from tokenwire.coordinator.api.fields.weight_limits import WeightLimitFields
from tokenwire.coordinator.api.fields.wire_values import checked_cache_salt, set_engine_fields
from tokenwire.coordinator.api.tokens.sampling_params import SamplingParams
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.types import GenerationRequest, TokenPrompt

NOT_SERVED: dict[str, tuple[Any, ...]] = {"features": (None, {}), "content_parts": (None, [])}
"""Of media, which are not supported."""


class ReasoningParserKwargs(RequestModel):
    """What the engine's reasoning parser needs about the prompt's rendering."""

    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)


class GenerateRequest(WeightLimitFields):
    """vLLM's request of ids."""

    model_config = ConfigDict(extra="allow")

    token_ids: Annotated[list[int], Field(min_length=1)]
    sampling_params: SamplingParams
    model: str | None = None
    request_id: Identifier = ""
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
    """Of a rendering; ignored."""

    @property
    def shows_text(self) -> bool:
        """Whether the response has text in addition to ids."""
        return self.output_mode == "text"

    @property
    def shows_usage(self) -> bool:
        """Whether a stream ends with usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def shows_continuous_usage(self) -> bool:
        """Whether every chunk of a stream has usage; only if it ends with usage."""
        return self.shows_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def to_generation(self, response_id: str, headers: RequestHeaders) -> GenerationRequest:
        """Translate into a GenerationRequest. Raises InvalidRequest."""
        prompts = [TokenPrompt(self.token_ids, "token_ids")]
        request = self.sampling_params.to_generation(response_id, prompts, model=self.model, shows_text=self.shows_text)
        set_engine_fields(request.sampling, self.kv_transfer_params, self.ec_transfer_params)
        kwargs = self.reasoning_parser_kwargs
        return replace(
            request,
            priority=self.priority,
            cache_salt=self.cache_salt,
            conversation_id=headers.conversation_id,
            data_parallel_rank=headers.data_parallel_rank,
            weights=self.weight_limits(headers.weights),
            streams=bool(self.stream),
            reasoning_ended=self.reasoning_ended,
            reasoning_parser_kwargs=None if kwargs is None else kwargs.model_dump(),
        )
