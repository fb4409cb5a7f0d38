"""Schemas of the Responses API in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tokenwire.coordinator.api.openapi.openai_schemas import ChatPosition

_Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(BaseModel):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[ChatPosition]


class ReasoningText(BaseModel):
    """The text of a reasoning item."""

    type: Literal["reasoning_text"]
    text: str


class OutputItem(BaseModel):
    """A message, reasoning, or a tool call; `type` determines the fields."""

    id: str
    type: Literal["message", "reasoning", "function_call", "custom_tool_call", "local_shell_call"]
    status: _Status
    role: Literal["assistant"] | None = None
    content: list[OutputText | ReasoningText] | None = None
    summary: list[Any] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = Field(default=None, description="JSON, of a function.")
    input: str | None = Field(default=None, description="Of a custom tool.")
    action: dict[str, Any] | None = Field(default=None, description="Of the local shell.")


class InputTokensDetails(BaseModel):
    """Input tokens found in a prefix cache."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Breakdown of the output tokens."""

    reasoning_tokens: int


class ResponsesUsage(BaseModel):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(BaseModel):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(BaseModel):
    """Why a response is incomplete."""

    reason: str


class ResponsesResponse(BaseModel):
    """A response, with the fields of the request that it echoes."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None = None
    status: _Status
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    model: str
    output: list[OutputItem]
    usage: ResponsesUsage | None
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    presence_penalty: float
    frequency_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    kv_transfer_params: dict[str, Any] | None = None


class KeptMessage(BaseModel):
    """A message of the user, as it was sent."""

    id: str
    type: Literal["message"]
    role: Literal["user"]
    status: str
    content: list[dict[str, Any]]


class CompactionItem(BaseModel):
    """A summary of the conversation, to be sent back unchanged."""

    id: str
    type: Literal["compaction"]
    encrypted_content: str


class CompactedResponse(BaseModel):
    """A compacted conversation: all messages of the user, and one compaction item."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[KeptMessage | CompactionItem]
    usage: ResponsesUsage


class DeletedResponse(BaseModel):
    """That a response was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItems(BaseModel):
    """One page of a response's input."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ResponseEvent(BaseModel):
    """The data of one event of a streamed response; `type`, which is also the event's name, determines the fields."""

    type: str = Field(examples=["response.created", "response.output_text.delta", "response.completed"])
    sequence_number: int
    response: ResponsesResponse | None = None
    output_index: int | None = None
    content_index: int | None = None
    item_id: str | None = None
    item: OutputItem | None = None
    part: OutputText | ReasoningText | None = None
    delta: str | None = None
    logprobs: list[ChatPosition] | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
