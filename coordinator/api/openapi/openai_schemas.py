"""Schemas of the responses of chat, completions and the list of models in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tokenwire.coordinator.types import WeightSpan

FinishReason = Literal["stop", "length", "tool_calls", "abort", "repetition"]


class TokenScore(BaseModel):
    """The log-probability of a token at a position."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[str, TokenScore] | None]
"""For each token of the prompt, by token id; none for the first."""


class PromptTokensDetails(BaseModel):
    """Prompt tokens found in a prefix cache, and those of media by modality."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None
    multimodal_tokens: dict[str, int] | None = None


class CompletionTokensDetails(BaseModel):
    """Breakdown of the completion tokens."""

    reasoning_tokens: int | None = None


class UsageInfo(BaseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class ChatLogprob(BaseModel):
    """The log-probability of the sampled token or of an alternative."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatPosition(ChatLogprob):
    """A token of the reply and the most likely ones at its position."""

    top_logprobs: list[ChatLogprob]


class ChatLogprobs(BaseModel):
    """Log-probabilities of a reply's tokens."""

    content: list[ChatPosition]


class Function(BaseModel):
    """The function to call."""

    name: str | None = None
    arguments: str | None = Field(default=None, description="JSON.")


class ToolCall(BaseModel):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: Function


class DeltaToolCall(BaseModel):
    """The delta of a tool call; `index` identifies the call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: Function | None = None


class TokenHistoryUse(BaseModel):
    """How much of a prompt was reused from ids of earlier turns."""

    mode: Literal["exact"]
    reused_tokens: int
    source: str | None = Field(description="Where those ids came from.")


class AssistantMessage(BaseModel):
    """A reply."""

    role: str
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    prompt_token_ids: list[int] | None = None
    generation_token_ids: list[int] | None = None
    generation_log_probs: list[float] | None = None


class ChatChoice(BaseModel):
    """One of the `n` replies."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    token_ids: list[int] | None
    routed_experts: None = None
    weight_versions: list[WeightSpan] | None = None


class ChatCompletion(BaseModel):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: UsageInfo
    prompt_logprobs: PromptLogprobs | None
    prompt_token_ids: list[int] | None
    prompt_text: str | None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: None = None
    metrics: None = None
    token_history: TokenHistoryUse | None = None


class ChatDelta(BaseModel):
    """The delta of a reply."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[DeltaToolCall] | None = None


class ChatChunkChoice(BaseModel):
    """A choice's part of a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    weight_versions: list[WeightSpan] | None = None


class ChatCompletionChunk(BaseModel):
    """The data of one event of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: UsageInfo | None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: str | None = None
    token_history: TokenHistoryUse | None = None


class CompletionLogprobs(BaseModel):
    """Log-probabilities of a completion's tokens, position by position."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(BaseModel):
    """One of the `n` completions."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None
    token_ids: list[int] | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: PromptLogprobs | None = None
    routed_experts: None = None
    weight_versions: list[WeightSpan] | None = None


class Completion(BaseModel):
    """A completion, or a chunk of a streamed one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: UsageInfo | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: None = None
    metrics: None = None


class Model(BaseModel):
    """A name that requests may use: a model's or an adapter's."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["tokenwire"]
    root: str | None
    parent: str | None
    max_model_len: int | None


class ModelList(BaseModel):
    """All models and adapters."""

    object: Literal["list"]
    data: list[Model]
