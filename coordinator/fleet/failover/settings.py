"""Settings and statistics of failover."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.errors import InvalidRequest

ResumePolicy = Literal["auto", "exact", "plausible"]


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """How a request whose worker is lost is resumed."""

    attempts: int = 3
    """Maximum number of losses that a request survives; 0: none."""
    resume: ResumePolicy = "auto"
    """Whether a resumed reply must equal an uninterrupted run."""

    def __post_init__(self) -> None:
        if self.attempts < 0:
            raise InvalidRequest(f"--failover-attempts must not be negative, got {self.attempts}")


@dataclass(slots=True)
class FailoverStats:
    """Counts sequences whose worker was lost or handed them back, by result."""

    resumed: int = 0
    """Continued from their tokens, or restarted before the first one."""
    replayed: int = 0
    """Generated again from the start, with the tokens that the client already has suppressed."""
    failed: int = 0
    """Failed with an error."""
    poisoned: int = 0
    """Failed because two workers died, or seemed to die, of them."""
