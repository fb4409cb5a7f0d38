"""The interface of the store in which coordinators and processes count the usage of API keys together."""

from dataclasses import dataclass
from typing import Literal, Protocol

from tokenwire.coordinator.auth.rate_limit import Limits

Lease = bytes
"""The name of a running request."""


@dataclass(frozen=True, slots=True)
class SharedUsage:
    """What the store says of a key."""

    refused: Literal["", "concurrent", "requests", "tokens"]
    """The limit that refuses a request; empty: none."""
    requests: float
    """What is left of the requests and tokens per minute, after the request if it is not refused."""
    tokens: float


class LimitStore(Protocol):
    """Counts what all coordinators let in. Raises nothing: a failure lets a request in."""

    failures: int
    """How often it failed."""

    async def enter(self, key: bytes, limits: Limits) -> tuple[Lease, SharedUsage | None]:
        """Count a request that starts, until it leaves; None: the store failed."""

    def leave(self, key: bytes, lease: Lease) -> None:
        """End a request, soon."""

    async def take(self, key: bytes, limits: Limits, tokens: int) -> SharedUsage | None:
        """Take tokens if so many are left; None: the store failed."""

    def give_back(self, key: bytes, limits: Limits, tokens: int) -> None:
        """Give tokens back, or take more if negative, soon."""

    async def close(self) -> None:
        """Write what has ended, and disconnect."""
