"""Limits of the admission queue."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option

UNLIMITED = 2**63
LEAST_QUEUE = 16
"""Minimum of the default queue length, in sequences."""

Rejection = Literal["full", "no_worker", "timeout"]


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The bounds of the queue in which requests wait for a worker.

    Trainers send whole batches and wait: with --enable-rl the queue may be longer.
    """

    queue_timeout_s: float = option(
        60.0,
        Option(
            "--queue-timeout",
            "Timeout of a request in the queue, in seconds. "
            "If it leaves the queue in parts, the queue timeout begins anew with each.",
            Section.ADMISSION,
            bounds=Bounds(above=0),
            default_text="60; with --enable-rl 600",
            default_with=("--enable-rl", 600.0),
        ),
    )
    max_queue: int | None = option(
        None,
        Option(
            "--max-queue",
            "Maximum queued sequences per model and process; 0: requests that no worker has capacity for are "
            "rejected at once.",
            Section.ADMISSION,
            bounds=Bounds(at_least=0),
            default_text="as many as its workers run at a time, and 64 times that of a pooling model; "
            "with --enable-rl no limit",
            default_with=("--enable-rl", UNLIMITED),
        ),
    )
    max_queue_bytes: int = option(
        256 * 2**20,
        Option(
            "--max-queue-mb",
            "Maximum memory of all queued requests, each counted as by --max-request-mb.",
            Section.ADMISSION,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    max_running_bytes: int = option(
        512 * 2**20,
        Option(
            "--max-running-mb",
            "Maximum memory of all requests that workers have, each counted as by --max-request-mb with its "
            "reply if that is kept (at first 4,096 tokens of each choice), until the reply is sent. Beyond it requests "
            "wait in the queue, and of replies that become longer the newest of the client with most get a 503. Those "
            "of more than 1 MiB take half of it at most, one as well as all together; of either part one client takes "
            "three times at most what it leaves free, times its weight.",
            Section.ADMISSION,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
            default_text="512; with --enable-rl 4096",
            default_with=("--enable-rl", 2**32),
        ),
    )
    request_timeout_s: float | None = option(
        None,
        Option(
            "--request-timeout",
            "Maximum total time of a request in seconds, counted from its arrival; its header X-Request-Timeout may "
            "set less.",
            Section.ADMISSION,
            bounds=Bounds(above=0),
            default_text="no limit",
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
