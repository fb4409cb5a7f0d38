"""Settings and statistics of failover."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.options import Bounds, Option, Section, check_bounds, option

ResumePolicy = Literal["auto", "exact", "plausible"]


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """How a request whose worker is lost is resumed."""

    attempts: int = option(
        3,
        Option(
            "--failover-attempts",
            "Worker losses that a request survives, and workers that may fail it before its first token, as long as "
            "there are others; 0: each fails it.",
            Section.FAILOVER,
            bounds=Bounds(at_least=0),
        ),
    )
    resume: ResumePolicy = option(
        "auto",
        Option(
            "--resume-policy",
            "How a reply resumes that cannot equal an uninterrupted run: exact fails it, plausible continues "
            "from its tokens, auto is exact where clients get token ids or log-probabilities.",
            Section.FAILOVER,
        ),
    )

    preempt_after_s: float = option(
        5.0,
        Option(
            "--preempt-after",
            "Seconds after which a tenant's request that waits takes places from a tenant that has more of them, by "
            "their weights: sequences that can go on exactly from their tokens are queued again. 0: never. Needs "
            "--failover-attempts.",
            Section.FAILOVER,
            bounds=Bounds(at_least=0),
            default_text="5; with --enable-rl 0",
            default_with=("--enable-rl", 0.0),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(slots=True)
class FailoverStats:
    """Counts sequences whose worker was lost or handed them back, by result."""

    resumed: int = 0
    """Continued from their tokens, or restarted before the first one."""
    replayed: int = 0
    """Generated again from the start, with the tokens that the client already has suppressed."""
    failed: int = 0
    """Failed with an error."""
    preempted: int = 0
    """Taken back from a worker for another tenant."""
    poison: int = 0
    """Failed because two workers died, or seemed to die, of them."""
