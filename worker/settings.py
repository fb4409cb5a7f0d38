"""The worker's configuration: frozen objects, validated once."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tokenwire.errors import InvalidRequest
from tokenwire.options import Option, check_bounds, option
from tokenwire.peer_auth.settings import PeerAuthSettings
from tokenwire.process.shared_options import CACHE_DIR, DRAIN_TIMEOUT, DRAIN_TIMEOUT_S
from tokenwire.worker.media.settings import MediaMemory


def _resolve(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(path.resolve() for path in paths)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Addresses, limits and paths of a worker."""

    listen: str = option(
        "127.0.0.1:50051", Option("--listen", "Address for coordinators: HOST:PORT or unix:PATH.", apart=True)
    )
    """Port 0: any."""
    drain_timeout_s: float = option(DRAIN_TIMEOUT_S, DRAIN_TIMEOUT)
    """Then sequences are aborted."""
    weights_roots: tuple[Path, ...] = option(
        (),
        Option(
            "--weights-root",
            "Directory that weights and adapters may be loaded from; repeat for more.",
            path="existing directory",
            default_text="any",
            parse=_resolve,
        ),
    )
    health_listen: str | None = option(
        None,
        Option(
            "--health-listen",
            "Additional HOST:PORT with unauthenticated health checks only, for probes without certificates.",
            apart=True,
        ),
    )
    metrics_listen: str | None = option(
        None, Option("--metrics-listen", "HOST:PORT that serves /metrics to Prometheus over plain HTTP.")
    )
    peer_auth: PeerAuthSettings = field(default_factory=PeerAuthSettings)
    """How coordinators authenticate."""

    def __post_init__(self) -> None:
        check_bounds(self)
        _check_address("--listen", self.listen)
        if self.health_listen is not None:
            _check_address("--health-listen", self.health_listen)
        if self.metrics_listen is not None:
            _check_address("--metrics-listen", self.metrics_listen)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Which engine a worker runs, and how it is started."""

    model: str | None = option(
        None,
        Option(
            "MODEL",
            "A directory or a Hugging Face hub id. Without it a small embedded model is served on the CPU; `make "
            "serve` installs it.",
        ),
    )
    """None: a small embedded model."""
    demo: Literal["chat", "embeddings"] = option(
        "chat", Option("--demo", "Which of the two embedded models is served where no MODEL is given.")
    )
    engine: Literal["vllm", "sim"] = option(
        "vllm", Option("--engine", "vLLM, or a simulated engine that generates made-up tokens.")
    )
    served_model_names: tuple[str, ...] = option(
        (), Option("--served-model-name", "Model name in requests; repeat for aliases.", default_text="MODEL")
    )
    warm_up: bool = option(
        True,
        Option(
            "--warm-up/--no-warm-up",
            "Run a request of each kind at startup, so that none of the first ones waits for kernels to be compiled.",
        ),
    )
    kv_events: bool = option(
        False,
        Option("--kv-events", "Publish the contents of the prefix cache to coordinators, for cache-aware routing."),
    )
    allow_untested_vllm: bool = option(
        False,
        Option("--allow-untested-vllm", "Try a version of vLLM that was not tested, instead of refusing to start."),
    )
    media: MediaMemory = field(default_factory=MediaMemory)
    """Pictures of prompts."""
    cache_dir: Path | None = option(None, CACHE_DIR)
    """The embedded model is prepared there."""
    arguments: str = option(
        "", Option("--engine-args", "Engine arguments, where a command line cannot carry them after --.", apart=True)
    )


def _check_address(flag: str, address: str) -> None:
    if address.startswith("unix:"):
        return
    _, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise InvalidRequest(f"{flag} must be HOST:PORT or unix:PATH, got {address!r}")
