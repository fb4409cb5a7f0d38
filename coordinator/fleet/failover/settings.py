"""How much is done for a request whose worker is lost."""

from dataclasses import dataclass
from typing import Literal

from tokenwire.errors import InvalidRequest

ResumePolicy = Literal["auto", "exact", "plausible"]


@dataclass(frozen=True, slots=True)
class FailoverSettings:
    """How often a request may be lost."""

    attempts: int = 3
    """How many losses a request survives; 0: none."""
    resume: ResumePolicy = "auto"
    """What a reply may be that goes on elsewhere."""

    def __post_init__(self) -> None:
        if self.attempts < 0:
            raise InvalidRequest(f"--failover-attempts must not be negative, got {self.attempts}")


@dataclass(slots=True)
class FailoverStats:
    """What has become of sequences whose worker was lost, or handed them over."""

    resumed: int = 0
    """Gone on with from their tokens, or begun anew before the first one."""
    replayed: int = 0
    """Generated from the start again, under the client's eyes only from where it was."""
    failed: int = 0
    """Ended with an error."""
    poisoned: int = 0
    """Ended because two workers died of them, or seemed to."""
