"""The coordinator's configuration: one frozen object, validated once.

One file, since its parts are checked against each other.
"""

import json
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal

from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.discovery.kubernetes_api import KubernetesSettings
from tokenwire.coordinator.fleet.discovery.parse import check_source, is_vllm_http
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.outliers import OutlierSettings
from tokenwire.coordinator.fleet.routing import Policy, parse_revision_shares
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.http.backlog import DEFAULT_BACKLOG_BYTES
from tokenwire.coordinator.http.backpressure import BodySettings
from tokenwire.coordinator.http.bounded_protocol import ProtocolLimits
from tokenwire.coordinator.http.tls import HttpsSettings
from tokenwire.coordinator.media.settings import MediaSettings
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.settings import ParserSettings
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.errors import InvalidRequest
from tokenwire.options import REQUIRED, Bounds, Option, Section, Unit, check_bounds, option
from tokenwire.peer_auth.grpc_options import MOST_TOKENIZER_BYTES
from tokenwire.peer_auth.settings import PeerAuthClientSettings
from tokenwire.process.shared_options import CACHE_DIR, DRAIN_TIMEOUT, DRAIN_TIMEOUT_S


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidRequest(f"--default-chat-template-kwargs is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"--default-chat-template-kwargs must be a JSON object, got {text}")
    return value


def _read_template(value: str) -> str:
    """Return a template given as a file or as its text. Raises InvalidRequest."""
    if "{" in value:
        return value
    try:
        return Path(value).read_text()
    except OSError as error:
        raise InvalidRequest(f"--chat-template: cannot read {value}: {error.strerror}") from error


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    networks = tuple(item.strip() for value in values for item in value.split(","))
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise InvalidRequest(f"--forwarded-allow-ips: {error}") from error
    return networks


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """Rendering of messages."""

    source: str | None = option(
        None,
        Option(
            "--chat-template",
            "Jinja template, as a file or as text, that replaces the model's own.",
            Section.TEMPLATES,
            parse=_read_template,
        ),
    )
    content_format: Literal["auto", "string", "openai"] = option(
        "auto",
        Option(
            "--chat-template-content-format",
            "Format of message content in templates: text, or a list of parts.",
            Section.TEMPLATES,
        ),
    )
    default_kwargs: dict[str, Any] = option(
        {},
        Option(
            "--default-chat-template-kwargs",
            "JSON object of template variables; requests override them.",
            Section.TEMPLATES,
            parse=_json_object,
        ),
    )
    trust_request: bool = option(
        False, Option("--trust-request-chat-template", "Accept chat templates in requests.", Section.TEMPLATES)
    )


@dataclass(frozen=True, slots=True)
class ObservabilitySettings:
    """Traces and logs of requests."""

    otlp_traces_endpoint: str | None = option(
        None,
        Option(
            "--otlp-traces-endpoint",
            "URL of an OpenTelemetry collector that receives spans. Needs the extra `otel`.",
            Section.LOGS,
        ),
    )
    request_log: bool = option(
        True, Option("--no-request-log", "Disable the log line of each finished request.", Section.LOGS)
    )
    log_prompts: bool = option(False, Option("--log-prompts", "Include prompts in the log.", Section.LOGS))


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """All settings of a coordinator."""

    workers: tuple[str, ...] = option(
        REQUIRED,
        Option(
            "--worker",
            "Worker address: HOST:PORT, unix:PATH, file:PATH (one address per line), dns:HOST:PORT, "
            "k8s:NAMESPACE/SERVICE:PORT, or http://HOST:PORT for a plain vLLM server. Repeat for more.",
            apart=True,
        ),
    )
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    host: str = option("127.0.0.1", Option("--host", "Address to listen on."))
    """On loopback, other host names are rejected."""
    port: int = option(8000, Option("--port", "Port to listen on; 0: any.", bounds=Bounds(at_least=0, at_most=65535)))
    processes: int = option(
        1, Option("--processes", "Coordinator processes that share the port.", bounds=Bounds(at_least=1, at_most=256))
    )
    tokenizer: Path | None = option(
        None,
        Option(
            "--tokenizer",
            "Directory with tokenizer.json.",
            path="existing directory",
            default_text="the worker's",
            apart=True,
        ),
    )
    max_tokenizer_bytes: int = option(
        MOST_TOKENIZER_BYTES,
        Option(
            "--max-tokenizer-mb",
            "Maximum size of the tokenizer files that a worker brings. One with more gets no requests.",
            unit=Unit.MiB,
            bounds=Bounds(above=0, at_most=256),
        ),
    )
    http_worker_key: str | None = option(
        None,
        Option(
            "--http-worker-key-file",
            "File with the API key of workers at http://; or set TOKENWIRE_HTTP_WORKER_KEY.",
            path="existing file",
            contents="key of HTTP workers",
            apart=True,
        ),
    )
    cache_dir: Path | None = option(None, CACHE_DIR)
    """Cache of tokenizer files by digest; None: not cached."""
    expected_models: tuple[str, ...] = option(
        (),
        Option(
            "--expect-model",
            "Model that is listed, and whose requests are queued, before its first worker has connected. "
            "Repeat for more.",
            apart=True,
        ),
    )
    model_linger_s: float = option(
        300.0,
        Option(
            "--model-linger",
            "Seconds that a model without workers stays listed.",
            bounds=Bounds(at_least=0),
            apart=True,
        ),
    )
    bodies: BodySettings = field(default_factory=BodySettings)
    drain_timeout_s: float = option(DRAIN_TIMEOUT_S, DRAIN_TIMEOUT)
    drain_delay_s: float = option(
        0.0,
        Option(
            "--drain-delay",
            "Seconds to keep accepting requests after SIGTERM while /health returns 503, so that load "
            "balancers notice.",
            bounds=Bounds(at_least=0),
        ),
    )
    client_stall_timeout_s: float = option(
        60.0,
        Option(
            "--client-stall-timeout",
            "Seconds after which a client that does not read its response is disconnected.",
            bounds=Bounds(above=0),
        ),
    )
    peer_auth: PeerAuthClientSettings = field(default_factory=PeerAuthClientSettings)
    """The coordinator's name towards workers."""
    failover: FailoverSettings = field(default_factory=FailoverSettings)
    liveness: LivenessSettings = field(default_factory=LivenessSettings)
    outliers: OutlierSettings = field(default_factory=OutlierSettings)
    https: HttpsSettings = field(default_factory=HttpsSettings)
    allowed_hosts: tuple[str, ...] = option(
        (),
        Option(
            "--allowed-host",
            "Host name that requests may use, besides localhost and addresses; repeat for more.",
            Section.HTTP,
            default_text="no other on a loopback address, else any",
            parse=_lower,
        ),
    )
    trusted_proxies: tuple[str, ...] = option(
        (),
        Option(
            "--forwarded-allow-ips",
            "Addresses and networks of proxies whose X-Forwarded-For is believed, separated by commas.",
            Section.HTTP,
            default_text="none",
            parse=_networks,
        ),
    )
    protocol_limits: ProtocolLimits = field(default_factory=ProtocolLimits)
    keep_alive_timeout_s: int = option(
        5,
        Option(
            "--keep-alive-timeout",
            "Seconds that an idle connection is kept open; set it higher than that of a load balancer in front.",
            Section.HTTP,
            bounds=Bounds(at_least=1),
        ),
    )
    status_page: bool = option(
        True, Option("--no-status-page", "Disable the status page at / and its data.", Section.HTTP)
    )
    auth: AuthSettings = field(default_factory=AuthSettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    max_backlog_bytes: int = option(
        DEFAULT_BACKLOG_BYTES,
        Option(
            "--max-backlog-mb",
            "Maximum memory of response data that clients have not read; a client with a sixteenth of it is "
            "disconnected, and beyond it the slowest of the tenant that has most.",
            Section.ADMISSION,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    routing: Policy = option(
        "affinity",
        Option(
            "--routing",
            "Routing policy: affinity prefers the worker that has the prompt's prefix cached unless its load "
            "outweighs that, load the one with the fewest sequences, round-robin takes turns.",
            Section.ROUTING,
        ),
    )
    revision_shares: dict[str, float] = option(
        {},
        Option(
            "--revision-share",
            "REVISION=PERCENT of the new requests of its model, while workers of several revisions are connected. "
            "Repeat for more; those without a share get the rest.",
            Section.ROUTING,
            repeated=True,
            parse=parse_revision_shares,
            default_text="by free capacity",
            apart=True,
        ),
    )
    template: TemplateSettings = field(default_factory=TemplateSettings)
    parsers: ParserSettings = field(default_factory=ParserSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    media: MediaSettings = field(default_factory=MediaSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    response_store: ResponseStoreSettings = field(default_factory=ResponseStoreSettings)
    trajectories: TrajectorySettings = field(default_factory=TrajectorySettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    observability: ObservabilitySettings = field(default_factory=ObservabilitySettings)
    siblings_dir: Path | None = option(None, Option("--siblings-dir", path="any", hidden=True))
    """Directory in which processes that share a port find each other; None: there is one process."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if not self.workers:
            raise InvalidRequest("A coordinator needs at least one worker: --worker HOST:PORT")
        for worker in self.workers:
            check_source(worker, self.kubernetes)
            if is_vllm_http(worker) and self.tokenizer is None:
                raise InvalidRequest(f"--worker {worker}: a plain vLLM server needs --tokenizer DIR too")
        if self.auth.enabled and self.admin.admin_key is None and (self.admin.rl_routes or self.admin.lora_routes):
            raise InvalidRequest("With API keys, admin routes need an admin key: --admin-key-file")
        if self.processes > 1 and self.response_store.is_of_one_process:
            raise InvalidRequest(
                "--enable-responses-store with several --processes needs --responses-store: a request may reach a "
                "process that did not make the response"
            )
        if self.processes > 1 and self.trajectories.is_of_one_process:
            raise InvalidRequest(
                "--enable-trajectories with several --processes needs a --trajectories-store they share"
            )
