"""The interface of the store in which coordinators and processes count the work of tenants together."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class TenantReport(NamedTuple):
    """What one process says of a tenant. Work is in virtual time: tokens by the tenant's weight."""

    work: float
    """What it was given since the last report."""
    in_advance: float
    """What is counted of it instead by a process that begins to count: for what it has running now."""
    waiting: int
    """Its queued sequences."""
    ahead: float = 0.0
    """Of its work, what is not done: some of it may be taken back, so time does not go on for it."""
    weight: int = 1


class ShareReport(NamedTuple):
    """What one process says of the requests of one model and priority; or of a model, with priorities as tenants."""

    name: str
    """Of the model and priority, for all processes alike."""
    period: str
    """The time of waiting in which it counts; empty: it does not yet."""
    tenants: Mapping[str, TenantReport]
    """By names that are the same for all processes."""


class SharedTags(NamedTuple):
    """What the store says of one model and priority, while requests wait in any process."""

    period: str
    """The name of this time of waiting: whoever has not counted in it begins to."""
    virtual_time: float
    tags: Mapping[str, float]
    """Of tenants; of those that are not in it the virtual time."""
    waiting: Mapping[str, int]
    """The sequences that wait in other processes, by tenant."""


class ShareStore(Protocol):
    """Counts what all processes have given. Raises nothing."""

    failures: int
    """How often it failed."""

    @property
    def is_paused(self) -> bool:
        """Whether it failed a moment ago and is not asked."""

    async def exchange(self, reports: Sequence[ShareReport]) -> Sequence[SharedTags | None] | None:
        """Count what this process reports, and return what all have; in place of one None: nobody waits anywhere.

        Returns None if it failed; then it is not known whether the reports are counted.
        """

    async def close(self) -> None:
        """Disconnect."""
