"""Schemas of recorded sessions in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field

_Rewards = dict[str, float]


class CreatedSession(BaseModel):
    """A session that was created."""

    session_id: str
    url: str = Field(description="The path below which its requests go.")


class SessionInfo(BaseModel):
    """A session without its nodes."""

    session_id: str
    trace_count: int = Field(description="Number of its nodes.")
    created_at: float = Field(description="Seconds since 1970.")
    metadata: dict[str, Any]
    rewards: _Rewards = Field(description="The session's own, by name.")
    lost: int = Field(
        description="Nodes that were recorded and are missing: not stored or dropped since, or what they refer to is."
    )


class DeletedSession(BaseModel):
    """How many nodes were deleted."""

    deleted: int


class RewardReply(BaseModel):
    """A reward as it was stored."""

    name: str
    value: float


class Flushed(BaseModel):
    """Everything is stored."""

    status: Literal["flushed"]


class VersionSpan(BaseModel):
    """Tokens that weights of one version sampled."""

    version: str
    start: int
    end: int


class TrajectoryNode(BaseModel):
    """What was sampled for one choice of a request."""

    id: str = Field(description="Unique in its session.")
    parent: str | None = Field(description="The node that its prompt goes on after; null for the first of a line.")
    link: Literal["ids", "messages"] | None = Field(
        description="Whether its prompt begins with the ids of its parent's prompt and completion, or only goes on "
        "after its messages, as another template rendered them."
    )
    request_id: str = Field(description="The `id` of the response.")
    index: int = Field(description="The choice's index in the response.")
    model: str = Field(description="The first name of the model; an adapter's base model.")
    adapter: str | None = Field(description="The adapter.")
    sampling_params: dict[str, Any] = Field(
        description="With the model's defaults, as they were sent to the worker. Of more than 64 KiB, counted for each "
        "prompt of its request, only numbers and switches."
    )
    message_start: int = Field(description="How many messages of its prompt are those of its parent's prompt.")
    messages: list[dict[str, Any]] | None = Field(
        description="The messages of its prompt from there on; null if it was no conversation. A picture is "
        '`{"type": "image", "sha256": ...}`, with the digest of its bytes.'
    )
    tools: list[dict[str, Any]] | None = Field(description="The tools of its prompt; null if they are its parent's.")
    message: dict[str, Any] | None = Field(
        description="The reply as the client got it; if it was cut off, its text, decoded without parsing."
    )
    prompt_start: int = Field(
        description="How many ids of its prompt are those of its parent: 0 without a link by ids."
    )
    prompt_ids: list[int] = Field(description="The ids of its prompt from there on.")
    completion_ids: list[int] = Field(description="The sampled tokens that the client was sent.")
    logprobs: list[float] | None = Field(
        description="The log-probability of each, as a client would get it; null if the worker sent none."
    )
    mask: list[int] = Field(description="1 for each of them: all are to be trained on, and no token of a prompt is.")
    weight_versions: list[VersionSpan] | None = Field(description="Null if the worker does not label its weights.")
    finish: str = Field(description="stop, length, repetition, abort (also for a client that left) or error.")
    stop_reason: int | str | None = Field(description="The stop string or stop token that matched.")
    resumed: bool = Field(description="Whether another worker took over after a loss.")
    rewards: _Rewards = Field(description="The node's own, by name.")
    started: float = Field(description="When the request came, in seconds since 1970.")
    first_token: float | None
    ended: float
    workers: list[str] = Field(description="The workers that had it, in order.")


class Trajectory(SessionInfo):
    """The graph of a session, or a page of it."""

    nodes: list[TrajectoryNode] = Field(description="In order of their ends.")
    has_more: bool


class GatewayWorker(BaseModel):
    """A worker, in the format of rLLM's gateway."""

    worker_id: str
    url: str = Field(description="Its address, which speaks gRPC, but for plain vLLM servers.")
    api_path: str
    model_name: str | None
    weight: int
    healthy: bool = Field(description="Whether it gets new requests.")
    active_requests: int = Field(description="The sequences that this process runs there.")


class RllmTrace(BaseModel):
    """A node, in rLLM's format."""

    trace_id: str = Field(description="`SESSION:NODE`.")
    session_id: str
    model: str
    messages: list[dict[str, Any]]
    prompt_token_ids: list[int]
    response_message: dict[str, Any]
    completion_token_ids: list[int]
    logprobs: list[float] | None
    finish_reason: str
    latency_ms: float
    token_counts: dict[str, int]
    timestamp: float
    metadata: dict[str, Any]
    raw_request: None
    raw_response: None
