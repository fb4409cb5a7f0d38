"""Schemas of the responses of the token-id routes in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from tokenwire.coordinator.api.openapi.openai_schemas import PromptLogprobs, TokenHistoryUse, UsageInfo
from tokenwire.coordinator.types import WeightSpan


class TokenizeResponse(BaseModel):
    """A text, or a conversation, as ids."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(BaseModel):
    """Ids as a text."""

    prompt: str


class IdScore(BaseModel):
    """The log-probability of the sampled id or of an alternative."""

    token: str
    token_id: int
    logprob: float
    bytes: list[int] | None
    rank: int | None


class IdPosition(IdScore):
    """An id of the reply and the most likely ones at its position."""

    top_logprobs: list[IdScore]


class IdLogprobs(BaseModel):
    """Log-probabilities of a reply's ids."""

    content: list[IdPosition]


class GenerateChoice(BaseModel):
    """One of the `n` replies, or its delta."""

    index: int
    token_ids: list[int]
    text: str | None = Field(default=None, description="Where `output_mode` is text.")
    logprobs: IdLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    routed_experts: None
    sampling_mask: None
    weight_versions: list[WeightSpan] | None


class Generated(BaseModel):
    """The ids generated from ids."""

    request_id: str
    model: str
    created: int
    usage: UsageInfo
    prompt_logprobs: PromptLogprobs | None
    prompt_token_id_logprobs: None
    prompt_token_ids: list[int] | None
    mm_placeholders: None
    metrics: None
    kv_transfer_params: dict[str, Any] | None
    ec_transfer_params: None
    output_mode: Literal["tokens", "text"]
    choices: list[GenerateChoice]


class GeneratedChunk(BaseModel):
    """The data of one event of a streamed reply."""

    request_id: str
    output_mode: Literal["tokens", "text"]
    choices: list[GenerateChoice]
    prompt_token_ids: list[int] | None = None
    usage: UsageInfo | None = None


class Rendered(BaseModel):
    """A rendered request: its prompts, and the messages that workers would get."""

    object: Literal["tokenwire.render"]
    model: str
    prompts: list[str | None]
    token_history: TokenHistoryUse | None = None
    submits: list[dict[str, Any]] = Field(description="`tokenwire.v1.Submit`, as protobuf's JSON.")
    n: int
    text: dict[str, Any]
    parsing: dict[str, Any] | None


class SglangFinish(BaseModel):
    """Why a reply ended."""

    type: Literal["stop", "length", "abort"]
    matched: str | int | None = None
    length: int | None = None
    message: str | None = None


class SglangMeta(BaseModel):
    """SGLang's metadata of a reply."""

    id: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: SglangFinish | None
    weight_version: str | None
    weight_versions: list[WeightSpan] | None
    input_token_logprobs: list[list[float | int | None]] | None = None
    output_token_logprobs: list[list[float | int | None]] | None = None
    output_top_logprobs: list[list[list[float | int | None]]] | None = None


class SglangGenerated(BaseModel):
    """The reply so far: each event of a stream repeats all before it."""

    text: str
    output_ids: list[int]
    meta_info: SglangMeta
    index: int | None = None


class TrlGenerated(BaseModel):
    """Prompts and completions as ids."""

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    logprobs: list[list[list[float | None]]] | None
    logprob_token_ids: list[list[list[int]]] | None


class TrlScores(BaseModel):
    """Log-probabilities, the most likely first; on request as float32 and int32 in base64."""

    logprobs: list[list[list[float | None]]] | None = None
    logprob_token_ids: list[list[list[int]]] | None = None
    logprobs_b64: str | None = None
    token_ids_b64: str | None = None
    actual_logprobs_b64: str | None = None
    actual_token_ids_b64: str | None = None
    shape: list[int] | None = None
    completion_lengths: list[int] | None = None


class Aborted(BaseModel):
    """How many sequences were aborted."""

    status: Literal["aborted"]
    aborted: int


class RouterWorkers(BaseModel):
    """The workers that an SGLang router would list: this service alone."""

    workers: list[dict[str, str]]


class RouterUrls(BaseModel):
    """The same as URLs."""

    urls: list[str]
