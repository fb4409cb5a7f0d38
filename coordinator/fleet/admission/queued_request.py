"""A request in the queue or on workers, and the handle of it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tokenwire.coordinator.fleet.admission.shares import TenantShare
from tokenwire.coordinator.fleet.admission.work_meter import REPLY_TOKENS, WorkMeter
from tokenwire.coordinator.fleet.request_handle import NEW, Placement, SubmissionHandle
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission

if TYPE_CHECKING:
    from tokenwire.coordinator.fleet.session import WorkerSession


class PartHandle(SubmissionHandle, Protocol):
    """The handle of the sequences that were sent to one worker."""

    @property
    def session(self) -> "WorkerSession":
        """The session with it."""

    @property
    def listeners(self) -> Sequence[SlotListener]:
        """Their listeners: the first ones of those that were to be sent."""

    def abort_at(self, place: int) -> None:
        """Abort the sequence at this place among them."""

    def running(self) -> Sequence[int]:
        """Return the places of those that still run."""


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """The handle of a request. Its sequences go to workers at once, or leave the queue as there is room for them."""

    model: str
    submission: Submission
    """What is queued of it: as a whole, or from a later sequence on."""
    listeners: Sequence[SlotListener]
    """Those of its queued sequences."""
    placement: Placement
    share: TenantShare | None = None
    """What its work counts for; None if it is resumed: then it counted when it was first started."""
    arrival: int = 0
    """Its number in the order of arrival."""
    queued: bool = False
    """Whether any of it is queued."""
    needs: frozenset[str] = frozenset()
    """What not every worker has of what it needs, since it is queued."""
    parts: list[tuple[PartHandle, Sequence[SlotListener], WorkMeter | None]] = field(default_factory=list)
    """What was sent to workers, with the listeners that it was sent with, and what reads their work."""
    waits_for_memory: bool = False
    """Whether it is queued for memory for which smaller requests do not wait."""
    waits_since: float = 0.0
    """When it was queued, or a part of it was last sent."""
    timer: asyncio.TimerHandle | None = None
    on_abort: "Callable[[QueuedRequest], None]" = field(default=lambda queued: None)
    """Removes it from its queue."""

    def abort(self) -> None:
        """Remove it from the queue, and abort it on its workers. Called at its end in any case."""
        if self.queued:
            self.on_abort(self)
        for part, _, meter in self.parts:
            part.abort()
            if meter is not None and self.share is not None:
                self.share.end(meter)
        self.placement = NEW  # whose callback may refer to this handle

    def abort_on(self, session: "WorkerSession | None") -> None:
        """Abort what runs on one worker, or remove the rest from the queue if None."""
        if session is None:
            self.on_abort(self)
            return
        for part, _, meter in self.parts:
            if part.session is session:
                part.abort()
                self._settle(meter)

    def abort_one(self, listener: SlotListener) -> None:
        """Abort one sequence that a worker has, by its listener."""
        for part, listeners, meter in self.parts:
            for place, own in enumerate(listeners):
                if own is listener:
                    part.abort_at(place)
                    self._settle(meter)
                    return

    def _settle(self, meter: WorkMeter | None) -> None:
        if meter is not None and self.share is not None:
            self.share.settle(meter)

    def explain(self) -> str:
        """Return which workers have it, each with why it got its last part; empty while it is queued."""
        return ", ".join({part.session: part.explain() for part, _, _ in self.parts}.values())

    def begin(self, part: PartHandle) -> None:
        """Keep what is left to send after a part."""
        sent, share, meter = len(part.listeners), self.share, None
        listeners = self.listeners[:sent]
        if share is not None and self.placement.tenant:  # without tenants there is nobody to share with
            meter = WorkMeter(part, listeners, self._prompt_tokens(sent))
            share.meters[meter] = None
        self.parts.append((part, listeners, meter))
        self.listeners = self.listeners[sent:]
        if self.listeners:
            self.submission = replace(self.submission, start=self.submission.start + sent)

    @property
    def may_be_refused(self) -> bool:
        """Whether its client has nothing of it yet, nor of its request."""
        placement = self.placement
        return not (self.parts or placement.resumed or placement.preempted or placement.joins)

    @property
    def sequences(self) -> int:
        """Its number of queued sequences."""
        return len(self.listeners)

    @property
    def size_bytes(self) -> int:
        """Its approximate memory."""
        return self.placement.sequence_bytes * len(self.listeners)

    def tokens(self, sequences: int) -> int:
        """Return the approximate work of so many of its sequences; what is computed again is not its tenant's."""
        return self._prompt_tokens(sequences) + REPLY_TOKENS * sequences

    def _prompt_tokens(self, sequences: int) -> int:
        return 0 if self.placement.preempted else self.submission.prompt_tokens(sequences)
