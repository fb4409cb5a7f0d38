"""The worker's configuration: one frozen object, validated once."""

from dataclasses import dataclass, field
from pathlib import Path

from tokenwire.errors import InvalidRequest
from tokenwire.peer_auth.settings import LinkSettings


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker listens and stops."""

    listen: str
    """`HOST:PORT` (port 0: any) or `unix:PATH`."""
    drain_timeout_s: float = 30.0
    """How long sequences may run on after SIGTERM before they are aborted."""
    weights_roots: tuple[Path, ...] = ()
    """Directories that weights and adapters may be read from; none: any."""
    link: LinkSettings = field(default_factory=LinkSettings)
    """What coordinators must show."""
    health_listen: str | None = None
    """Where health is told to whoever asks; None: only where everything else is."""
    metrics_listen: str | None = None
    """Where Prometheus may ask over HTTP; None: nowhere."""

    def __post_init__(self) -> None:
        _check_address("--listen", self.listen)
        if self.health_listen is not None:
            _check_address("--health-listen", self.health_listen)
        if self.metrics_listen is not None:
            _check_address("--metrics-listen", self.metrics_listen)
        if self.drain_timeout_s < 0:
            raise InvalidRequest(f"--drain-timeout must not be negative, got {self.drain_timeout_s}")


def _check_address(flag: str, address: str) -> None:
    if address.startswith("unix:"):
        return
    _, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise InvalidRequest(f"{flag} must be HOST:PORT or unix:PATH, got {address!r}")
