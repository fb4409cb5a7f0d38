"""Finds sequences that their worker starves: no token for long.

A worker that serves some and not others is to blame: only time in which its steps go on counts. A sequence may wait in
the engine's queue for longer, as long as the worker says that any does. Without steps an engine stalls, or is held by
an operation, by what its worker says; but that is believed only for so long, where another worker is there to go on.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tokenwire.coordinator.fleet.outliers import PREFILL_S_PER_TOKEN, OutlierSettings
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.workload import Workload

_MOST_BELIEVED_S = 60.0
"""Of the time that a worker says its step may take: what an engine is given for its first ones."""


class Starvation(enum.Enum):
    """Why a slot gets no token."""

    OTHERS_ARE_SERVED = enum.auto()
    """The worker makes steps without it: it is to blame."""
    NO_STEPS = enum.auto()
    """The worker makes none, though nobody ordered that."""
    QUEUED = enum.auto()
    """It may wait for its turn, by what the worker says: then nobody is to blame."""


@dataclass(slots=True)
class _Wait:
    """For how long a slot has had no token."""

    running_s: float = 0.0
    """With steps, while the engine said that nobody waits."""
    queued_s: float = 0.0
    """With steps, while it said that some do."""
    still_s: float = 0.0
    """Without steps; half of it is forgotten whenever there are some, as steps may take long."""
    allowance_s: float = 0.0
    """What the prompts on the way to the worker may take; of all since the last token, the most."""


@dataclass(frozen=True, slots=True)
class StarvedSlot:
    """One that had no token for longer than it should."""

    slot: int
    waited_s: float
    cause: Starvation


class StarvationWatch:
    """Watches the slots of one session."""

    def __init__(self, slots: SlotTable, workload: Workload) -> None:
        self.steps = 0
        """Steps of the engine, by its last heartbeat."""
        self.step_allowance_s = 0.0
        """What the worker says that its step may take, by its last heartbeat."""
        self.advances = False
        """Whether there were steps or tokens between the last two checks."""
        self._slots = slots
        self._workload = workload
        self._waits: dict[int, _Wait] = {}
        self._seen = (0, 0)
        """Steps and tokens at the last check."""

    def begin(self) -> None:
        """Begin anew, with a new session."""
        self._waits.clear()

    def check(self, settings: OutlierSettings, elapsed_s: float, prompts: "dict[int, int]") -> Sequence[StarvedSlot]:
        """Return the slots that are starved, `elapsed_s` after the last check.

        `prompts` are the lengths of the prompts that the worker may be computing, by slot.
        """
        seen, self._seen = self._seen, (self.steps, self._workload.tokens)
        self.advances = seen != self._seen
        silent = self._slots.mark_silent()
        known, self._waits = self._waits, {}
        starved = []
        for slot in silent:
            wait = self._waits[slot] = known.get(slot) or _Wait()
            tokens = self._workload.prompt_tokens + prompts.get(slot, 0)
            wait.allowance_s = max(wait.allowance_s, tokens * PREFILL_S_PER_TOKEN)
            if not self.advances:
                wait.still_s += elapsed_s
            elif self._workload.load.waiting:
                wait.queued_s += elapsed_s
            else:
                wait.running_s += elapsed_s
            cause = self._cause(wait, settings)
            if self.advances:
                wait.still_s /= 2
            if cause is not None:
                starved.append(StarvedSlot(slot, wait.running_s + wait.queued_s + wait.still_s, cause))
        return starved

    def _cause(self, wait: _Wait, settings: OutlierSettings) -> Starvation | None:
        limit_s = settings.silence_timeout_s + wait.allowance_s
        if wait.running_s > limit_s:
            return Starvation.OTHERS_ARE_SERVED
        if wait.running_s + wait.still_s > limit_s + min(self.step_allowance_s, _MOST_BELIEVED_S):
            return Starvation.NO_STEPS
        if wait.running_s + wait.queued_s > settings.factor * limit_s:
            return Starvation.QUEUED
        return None
