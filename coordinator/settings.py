"""The coordinator's configuration: one frozen object, validated once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import AccessSettings
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.discovery.parse import check_source, is_stock
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.routing import Policy
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.http.backpressure import DEFAULT_BACKLOG_BYTES
from tokenwire.coordinator.http.protocol import ProtocolLimits
from tokenwire.coordinator.http.tls import HttpsSettings
from tokenwire.coordinator.parsing.settings import ParserSettings
from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.settings import LinkSettings


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What replies contain, where clients do not say."""

    prompt_tokens_details: bool = False
    """Whether usage tells how much of a prompt was cached."""
    tokens_as_token_ids: bool = False
    """Whether logprobs write tokens as "token_id:N"."""
    force_include_usage: bool = False
    """Whether every stream ends with usage."""
    exclude_tools_when_tool_choice_none: bool = False
    """Whether a template does not see tools that the model must not call."""
    render_route: bool = False
    """Whether clients may see what their requests become."""
    abort_all: bool = False
    """Whether a client may end everybody's requests at once."""
    debug_headers: bool = False
    """Whether responses say which worker was chosen, and why."""
    kv_transfer_params: bool = False
    """Whether requests may have engines fetch each other's memory."""
    token_history: Literal["auto", "exact", "template"] = "auto"  # noqa: S105
    """Whether chats re-use the ids of what was said before."""


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Who may steer workers over HTTP, and how long that may take."""

    rl_routes: bool = False
    """Whether there are routes that pause workers and change their weights."""
    lora_routes: bool = False
    """Whether there are routes that load adapters."""
    admin_key: AdminKey | None = None
    """The key that these routes ask for; None: whoever reaches them may use them."""
    timeout_s: float = 600.0
    """How long a worker may take for one operation."""
    stale_weights: bool = False
    """Whether workers that missed a weight update get requests all the same."""


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """How messages are rendered."""

    source: str | None = None
    """Jinja source that replaces the model's own."""
    content_format: Literal["auto", "string", "openai"] = "auto"
    default_kwargs: dict[str, Any] = field(default_factory=dict)
    """Values for templates, where requests do not give them."""
    trust_request: bool = False
    """Whether requests may bring a template of their own."""


@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """What is told about requests."""

    request_log: bool = True
    """Whether each one is a line in the log."""
    log_prompts: bool = False
    """Whether that line has the prompt."""
    otlp_traces_endpoint: str | None = None
    """Where spans are sent."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What a coordinator serves, and its limits."""

    workers: tuple[str, ...]
    """Where workers are: addresses, and sources of addresses (see fleet/discovery)."""
    link: LinkSettings = field(default_factory=LinkSettings)
    """What workers are shown."""
    host: str = "127.0.0.1"
    """The address that it listens on. On loopback names of other hosts are refused."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which clients may know it; without any, and not on loopback: all of them."""
    port: int = 8000
    template: TemplateSettings = field(default_factory=TemplateSettings)
    parsers: ParserSettings = field(default_factory=ParserSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    routing: Policy = "affinity"
    """How a worker is chosen."""
    tokenizer: Path | None = None
    """Directory to read the tokenizer from, instead of asking the worker."""
    stock_key: str | None = field(default=None, repr=False)
    """The API key of stock vLLM servers among the workers."""
    cache_dir: Path | None = None
    """Where tokenizer files are kept by digest; None: not kept."""
    expected_models: tuple[str, ...] = ()
    """Models that are listed, and waited for, before a worker has announced them."""
    model_linger_s: float = 300.0
    """How long a model stays known after its last worker left."""
    https: HttpsSettings = field(default_factory=HttpsSettings)
    reading: ProtocolLimits = field(default_factory=ProtocolLimits)
    keep_alive_timeout_s: int = 5
    """How long an idle connection is kept."""
    status_page: bool = True
    """Whether there is a page that shows the fleet."""
    max_body_bytes: int = 32 * 1024 * 1024
    drain_timeout_s: float = 30.0
    """How long replies may run on after SIGTERM."""
    drain_delay_s: float = 0.0
    """How long to go on taking requests after SIGTERM, while health says that there should come no more."""
    stall_timeout_s: float = 60.0
    """How long a client may read nothing before its stream is cut."""
    max_backlog_bytes: int = DEFAULT_BACKLOG_BYTES
    """What may be held back for all clients that are behind; a sixteenth of it for each."""
    liveness: LivenessSettings = field(default_factory=LivenessSettings)
    failover: FailoverSettings = field(default_factory=FailoverSettings)
    api: ApiSettings = ApiSettings()
    control: ControlSettings = ControlSettings()
    access: AccessSettings = field(default_factory=AccessSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    reuse_port: bool = False
    """Share the port with other coordinator processes."""
    observation: ObservationSettings = ObservationSettings()
    siblings_dir: Path | None = None
    """Where processes that share a port find each other; None: there is one process."""

    def __post_init__(self) -> None:
        if not self.workers:
            raise InvalidRequest("A coordinator needs at least one worker: --worker HOST:PORT")
        for worker in self.workers:
            check_source(worker)
            if is_stock(worker) and self.tokenizer is None:
                raise InvalidRequest(f"--worker {worker}: a stock vLLM server needs --tokenizer DIR too")
        if not 0 <= self.port <= 65535:
            raise InvalidRequest(f"--port must be between 0 and 65535, got {self.port}")
        if self.model_linger_s < 0:
            raise InvalidRequest(f"--model-linger must not be negative, got {self.model_linger_s}")
        if self.access.asks and self.control.admin_key is None and (self.control.rl_routes or self.control.lora_routes):
            raise InvalidRequest("With API keys, routes that steer workers need an admin key: --admin-key-file")
        for name in ("max_body_bytes", "stall_timeout_s", "max_backlog_bytes"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}")
