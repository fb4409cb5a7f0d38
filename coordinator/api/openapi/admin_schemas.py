"""Answers of the routes that steer and of those that tell about the service, as the OpenAPI document describes them."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Version(BaseModel):
    """The release."""

    version: str


class Done(BaseModel):
    """An operation was carried out on every worker."""

    status: str
    level: int | None = None
    tags: list[str] | None = None


class Message(BaseModel):
    """An operation was carried out, or begun."""

    message: str


class DoneOrMessage(BaseModel):
    """`message` for a transfer, `status` for a directory."""

    status: str | None = None
    message: str | None = None


class Paused(BaseModel):
    """Whether all workers are paused; each by itself where they differ."""

    is_paused: bool
    workers: dict[str, bool] | None = None


class Sleeping(BaseModel):
    """Whether all workers sleep; each by itself where they differ."""

    is_sleeping: bool
    workers: dict[str, bool] | None = None


class WeightInfo(BaseModel):
    """The label of the weights; each worker's where they differ."""

    weight_version: str | None
    workers: dict[str, str] | None = None


class VersionSet(BaseModel):
    """The new label."""

    success: bool
    new_version: str


class Success(BaseModel):
    """Whether every worker did it."""

    success: bool


class WorldSizeAnswer(BaseModel):
    """How many processes the engines have together."""

    world_size: int


class ServerInfoAnswer(BaseModel):
    """An engine's configuration."""

    vllm_config: dict[str, Any]
    vllm_env: dict[str, Any]
    system_env: dict[str, Any]
    tokenwire: str
    workers: int


class Results(BaseModel):
    """What the method returned, one entry for each process."""

    results: list[Any]


class Liveness(BaseModel):
    """Whether the engines answer."""

    status: Literal["ok", "engine_unresponsive"]
    message: str | None = None
    workers: list[dict[str, Any]] | None = None


class Worker(BaseModel):
    """What is known of a worker."""

    worker: str = Field(description="Its address.")
    session: str
    pause_state: Literal["running", "paused", "sleeping", "unknown"]
    weight_version: str | None
    weights_path: str | None
    loras: list[str]
    epoch: int | None
    gets_requests: bool
    reason: str | None = Field(description="Why it gets no requests.")
    problem: str | None = Field(description="Why it cannot be made like the others.")


class RlDone(BaseModel):
    """An operation was carried out: every worker as it is now."""

    status: Literal["ok"]
    applied_weight_version: str | None
    workers: list[Worker]


class RlState(BaseModel):
    """The state of a model's fleet."""

    ready: bool
    ingress_alive: bool
    engine_alive: bool
    pause_state: Literal["running", "paused", "sleeping", "mixed", "unknown"]
    applied_weight_version: str | None
    loras: list[dict[str, Any]]
    workers: list[Worker]
    message: str | None = None


class RlReady(BaseModel):
    """Whether all workers are there and alike."""

    ready: bool
    workers: list[Worker]


class RlWeightVersion(BaseModel):
    """The label of the weights that all workers have, and each one's."""

    weight_version: str | None
    workers: dict[str, str]


class RlWorkers(BaseModel):
    """One entry for each model's fleet."""

    protocol_version: int
    namespace: str
    workers: list[dict[str, Any]]


class PageWorker(Worker):
    """A worker with its load; null where it does not tell."""

    model: str | None
    max_num_seqs: int | None
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    sequences_from_here: int
    tokens: int


class PageModel(BaseModel):
    """A model and who waits for it."""

    names: list[str]
    adapters: list[str]
    max_model_len: int | None
    waiting_requests: int
    waiting_sequences: int


class PageStatus(BaseModel):
    """What this process knows of its fleet, as the status page shows it."""

    process: str
    version: str
    state: str
    uptime_s: float
    models: list[PageModel]
    workers: list[PageWorker]
