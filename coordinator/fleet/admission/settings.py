"""How many requests may wait, and for how long."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenwire.errors import InvalidRequest

_TIMEOUT_S = 60.0
_RL_TIMEOUT_S = 600.0
UNLIMITED = 2**63
LEAST_QUEUE = 16
"""Sequences that may wait for a model in any case, where no bound was set."""

Refusal = Literal["full", "no_worker", "timeout"]


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The bounds of the line in which requests wait for a worker."""

    queue_timeout_s: float = _TIMEOUT_S
    """How long a request may wait before it is refused."""
    max_queue: int | None = None
    """Sequences that may wait for a model; 0: none; None: as many as its workers run at a time."""
    max_queue_bytes: int = 256 * 1024 * 1024
    """Memory that all waiting requests may take."""
    request_timeout_s: float | None = None
    """How long a request may take as a whole, where it does not say; None: as long as it takes."""

    def __post_init__(self) -> None:
        if self.queue_timeout_s <= 0:
            raise InvalidRequest(f"--queue-timeout must be positive, got {self.queue_timeout_s}")
        if self.max_queue is not None and self.max_queue < 0:
            raise InvalidRequest(f"--max-queue must be at least 0, got {self.max_queue}")
        if self.max_queue_bytes <= 0:
            raise InvalidRequest(f"--max-queue-mb must be positive, got {self.max_queue_bytes / 2**20:g}")
        if self.request_timeout_s is not None and self.request_timeout_s <= 0:
            raise InvalidRequest(f"--request-timeout must be positive, got {self.request_timeout_s}")


def admission_settings(options: Mapping[str, Any]) -> AdmissionSettings:
    """Make settings of the command line's options. Trainers send whole batches and wait: for them lines are longer."""
    rl, timeout_s, limit = options["enable_rl"], options["queue_timeout"], options["max_queue"]
    return AdmissionSettings(
        queue_timeout_s=(_RL_TIMEOUT_S if rl else _TIMEOUT_S) if timeout_s is None else timeout_s,
        max_queue=UNLIMITED if rl and limit is None else limit,
        max_queue_bytes=int(options["max_queue_mb"] * 1024 * 1024),
        request_timeout_s=options["request_timeout"],
    )
