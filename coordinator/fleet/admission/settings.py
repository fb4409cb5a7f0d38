"""Limits of the admission queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tokenwire.errors import InvalidRequest

_TIMEOUT_S = 60.0
_RL_TIMEOUT_S = 600.0
UNLIMITED = 2**63
LEAST_QUEUE = 16
"""Minimum of the default queue length, in sequences."""

Rejection = Literal["full", "no_worker", "timeout"]


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The limits of the queue in which requests wait for a worker."""

    queue_timeout_s: float = _TIMEOUT_S
    """Maximum queue time of a request in seconds."""
    max_queue: int | None = None
    """Maximum queued sequences of a model; 0: none; None: as many as its workers run at a time."""
    max_queue_bytes: int = 256 * 1024 * 1024
    """Maximum memory of all queued requests."""
    request_timeout_s: float | None = None
    """Maximum total time of a request in seconds; None: unlimited."""

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
    """Return the settings from the command line's options. Trainers send whole batches: their queues are longer."""
    rl, timeout_s, limit = options["enable_rl"], options["queue_timeout"], options["max_queue"]
    return AdmissionSettings(
        queue_timeout_s=(_RL_TIMEOUT_S if rl else _TIMEOUT_S) if timeout_s is None else timeout_s,
        max_queue=UNLIMITED if rl and limit is None else limit,
        max_queue_bytes=int(options["max_queue_mb"] * 1024 * 1024),
        request_timeout_s=options["request_timeout"],
    )
