"""Schemas of the responses of admin and service routes in the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, Field


class Healthy(BaseModel):
    """The body for clients that read one."""

    status: Literal["ok"]


class Version(BaseModel):
    """The version."""

    version: str


class Done(BaseModel):
    """An operation was carried out on every worker."""

    status: str
    level: int | None = None
    tags: list[str] | None = None


class Confirmation(BaseModel):
    """An operation was carried out or started."""

    message: str


class DoneOrMessage(BaseModel):
    """`message` for a transfer, `status` for a directory."""

    status: str | None = None
    message: str | None = None


class Paused(BaseModel):
    """Whether all workers are paused; per worker where they differ."""

    is_paused: bool
    workers: dict[str, bool] | None = None


class Sleeping(BaseModel):
    """Whether all workers are asleep; per worker where they differ."""

    is_sleeping: bool
    workers: dict[str, bool] | None = None


class WeightInfo(BaseModel):
    """The weight version; per worker where they differ."""

    weight_version: str | None
    workers: dict[str, str] | None = None


class VersionSet(BaseModel):
    """The new weight version."""

    success: bool
    new_version: str


class Success(BaseModel):
    """Whether every worker succeeded."""

    success: bool


class WorldSizeResponse(BaseModel):
    """The total number of engine processes."""

    world_size: int


class ServerInfoResponse(BaseModel):
    """An engine's configuration."""

    vllm_config: dict[str, Any]
    vllm_env: dict[str, Any]
    system_env: dict[str, Any]
    tokenwire: str
    workers: int


class MethodResults(BaseModel):
    """The return values of the method, one for each process."""

    results: list[Any]


class Liveness(BaseModel):
    """Whether the engines respond."""

    status: Literal["ok", "engine_unresponsive"]
    message: str | None = None
    workers: list[dict[str, Any]] | None = None


class WorkerState(BaseModel):
    """The status of a worker."""

    worker: str = Field(description="The worker's address.")
    session: str
    pause_state: Literal["running", "paused", "sleeping", "unknown"]
    weight_version: str | None
    weights_path: str | None
    weights_origin: Literal["start", "directory", "transfer"] | None
    revision: str | None = Field(description="Workers of one revision continue each other's replies.")
    loras: list[str]
    epoch: int | None
    routable: bool
    reason: str | None = Field(description="Why it gets no requests; null when routable.")
    reconcile_error: str | None = Field(description="The last error of reconciling it; null without one.")


class RlDone(BaseModel):
    """An operation was carried out: the state of every worker afterwards."""

    status: Literal["ok"]
    applied_weight_version: str | None
    workers: list[WorkerState]


class RlState(BaseModel):
    """The state of a model's fleet."""

    ready: bool
    ingress_alive: bool
    engine_alive: bool
    pause_state: Literal["running", "paused", "sleeping", "mixed", "unknown"]
    applied_weight_version: str | None
    loras: list[dict[str, Any]]
    workers: list[WorkerState]
    message: str | None = None


class RlReady(BaseModel):
    """Whether all workers are connected and in sync."""

    ready: bool
    workers: list[WorkerState]


class RlWeightVersion(BaseModel):
    """The weight version common to all workers, and each worker's own."""

    weight_version: str | None
    workers: dict[str, str]


class RlWorkers(BaseModel):
    """One entry for each model's fleet."""

    protocol_version: int
    namespace: str
    workers: list[dict[str, Any]]


class PageWorker(WorkerState):
    """A worker with its load; null where it does not report one."""

    model: str | None
    engine: str | None = Field(description="What runs the model, such as vllm 0.32.0.")
    max_num_seqs: int | None
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    open_slots: int
    tokens: int


class PageModel(BaseModel):
    """A model and the requests queued for it."""

    names: list[str]
    adapters: list[str]
    max_model_len: int | None
    revisions: dict[str, float] = Field(description="Percentages of new requests, by revision.")
    prefixes: dict[str, int] = Field(description="Requests of sessions, by why their prompts missed the cache.")
    waiting_requests: int
    waiting_sequences: int


class PageProcess(BaseModel):
    """The state of the fleet as one process sees it."""

    process: str
    version: str
    state: str
    uptime_s: float
    models: list[PageModel]
    workers: list[PageWorker]


class PageStatus(BaseModel):
    """The state of the fleet in each process of the port, for the status page."""

    processes: list[PageProcess]


class PageSamples(BaseModel):
    """Samples of one process, each an array: `coordinator/api/status_page/traffic.py` lists its columns."""

    process: str
    samples: list[list[Any]]


class Since(BaseModel):
    """Which samples to return."""

    since: int = 0
    """The first period of time, as `period` counts them."""


class PageTraffic(BaseModel):
    """Samples of the last hour of each process of the port, for the charts of the status page."""

    period: int
    period_s: int
    first_token_bounds_s: list[float]
    token_gap_bounds_s: list[float]
    processes: list[PageSamples]
