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
            "Worker losses that a request survives; 0: a lost worker fails its requests.",
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
    poison: int = 0
    """Failed because two workers died, or seemed to die, of them."""
