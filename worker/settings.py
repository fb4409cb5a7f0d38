"""The worker's configuration: one frozen object, validated once."""

from dataclasses import dataclass
from pathlib import Path

from tokenwire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker listens and stops."""

    listen: str
    """`HOST:PORT` (port 0: any) or `unix:PATH`."""
    drain_timeout_s: float = 30.0
    """How long sequences may run on after SIGTERM before they are aborted."""
    weights_roots: tuple[Path, ...] = ()
    """Directories that weights and adapters may be read from; none: any."""

    def __post_init__(self) -> None:
        if not self.listen.startswith("unix:"):
            _, separator, port = self.listen.rpartition(":")
            if not separator or not port.isdecimal() or int(port) > 65535:
                raise InvalidRequest(f"--listen must be HOST:PORT or unix:PATH, got {self.listen!r}")
        if self.drain_timeout_s < 0:
            raise InvalidRequest(f"--drain-timeout must not be negative, got {self.drain_timeout_s}")
