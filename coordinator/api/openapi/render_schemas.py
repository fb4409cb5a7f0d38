"""Schemas of the responses of the render and derender routes in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tokenwire.coordinator.api.openai.derender_request import DerenderState
from tokenwire.coordinator.api.openapi.openai_schemas import ChatCompletion, ChatCompletionChunk, Completion


class PlaceholderRange(BaseModel):
    """The place of a picture in a prompt."""

    offset: int
    length: int


class RenderedFeatures(BaseModel):
    """vLLM's features of pictures, by modality."""

    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[PlaceholderRange]]
    kwargs_data: dict[str, list[str | None]] | None = Field(
        description='Processed tensors, as base64 of vLLM\'s encoding; null with `mm_payload` "none".'
    )
    mm_metadata: dict[str, list[str | None]] | None


class RenderedRequest(BaseModel):
    """A body for `/inference/v1/generate`, of this server or of vLLM's."""

    request_id: str
    token_ids: list[int]
    token_offsets: list[tuple[int, int]] | None = Field(
        description="Where each id stands in the rendered text, in characters; on request."
    )
    features: RenderedFeatures | None = Field(description="Of pictures.")
    content_parts: None
    sampling_params: dict[str, Any] = Field(description="vLLM's SamplingParams, with the model's defaults.")
    model: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: dict[str, Any] | None
    return_token_ids: None
    output_mode: Literal["tokens"]
    stream: bool
    stream_options: dict[str, Any] | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: None
    ec_transfer_params: None


class DerenderedChat(ChatCompletion):
    """A chat completion of given ids."""

    metrics: dict[str, Any] | None = None  # type: ignore[assignment]


class DerenderedChatChunk(ChatCompletionChunk):
    """A chunk of a chat of given ids."""

    system_fingerprint: None
    metrics: dict[str, Any] | None


class DerenderedChatStep(BaseModel):
    """A chunk, and what the next request of the same choice has to bring."""

    chunk: DerenderedChatChunk
    stream_state: DerenderState


class DerenderedCompletion(Completion):
    """A completion of given ids, or a chunk of one."""

    metrics: dict[str, Any] | None = None  # type: ignore[assignment]


class DerenderedCompletionStep(BaseModel):
    """A chunk, and what the next request of the same choice has to bring."""

    chunk: DerenderedCompletion
    stream_state: DerenderState
