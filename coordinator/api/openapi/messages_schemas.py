"""Schemas of the responses of Anthropic's Messages API in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tokenwire.coordinator.api.openapi.error_schemas import AnthropicErrorInfo

_StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class ContentBlock(BaseModel):
    """Text, thinking, or the use of a tool; `type` determines the fields."""

    type: Literal["text", "thinking", "tool_use"]
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class ThinkingDetails(BaseModel):
    """Breakdown of the output tokens."""

    thinking_tokens: int


class MessagesUsage(BaseModel):
    """Token counts; input tokens are those that were neither read from the cache nor written to it."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: ThinkingDetails | None = None


class MessagesResponse(BaseModel):
    """A reply."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: _StopReason | None
    stop_sequence: str | None
    usage: MessagesUsage
    kv_transfer_params: dict[str, Any] | None = None


class BlockDelta(BaseModel):
    """The delta of a block, or of the message itself."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta", "signature_delta"] | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: _StopReason | None = None
    stop_sequence: str | None = None


class MessageEvent(BaseModel):
    """The data of one event of a streamed reply; `type`, which is also the event's name, determines the fields."""

    type: str = Field(examples=["message_start", "content_block_delta", "message_stop"])
    message: MessagesResponse | None = None
    index: int | None = None
    content_block: ContentBlock | None = None
    delta: BlockDelta | None = None
    usage: MessagesUsage | None = None
    error: AnthropicErrorInfo | None = None


class TokenCount(BaseModel):
    """The length of a prompt."""

    input_tokens: int
