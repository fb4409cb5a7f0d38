"""A request in the queue, and the handle of it from then on."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tokenwire.coordinator.fleet.request_handle import Placement, RequestHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission

# The length of a reply is unknown: each sequence counts as this many tokens in addition to its prompt.
_REPLY_TOKENS = 256


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The handle of a queued request, then of its submission."""

    model: str
    submission: Submission
    listeners: Sequence[SlotListener]
    placement: Placement
    arrival: int = 0
    """Its number in the order of arrival."""
    queued: bool = True
    """Whether it is still queued."""
    handle: RequestHandle | None = None
    """Its submission to a worker; None while it waits."""
    timer: asyncio.TimerHandle | None = None
    on_abort: "Callable[[QueuedRequest], None]" = field(default=lambda queued: None)
    """Removes it from its queue."""

    def abort(self) -> None:
        """Remove it from the queue, or abort it on its worker."""
        if self.handle is not None:
            self.handle.abort()
        else:
            self.on_abort(self)

    def explain(self) -> str:
        """Return which worker has it; empty while queued."""
        return "" if self.handle is None else self.handle.explain()

    @property
    def sequences(self) -> int:
        """Its number of sequences."""
        return len(self.listeners)

    @property
    def size_bytes(self) -> int:
        """Its approximate memory."""
        return self.placement.sequence_bytes * len(self.listeners)

    @property
    def cost(self) -> int:
        """Its approximate work in tokens."""
        return len(self.submission.prompt_token_ids) + _REPLY_TOKENS * len(self.listeners)
