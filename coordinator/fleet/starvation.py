"""Finds sequences that their worker starves: no token for long, while its engine makes steps.

A worker that is silent as a whole is an outlier, and an engine without steps stalls; this is about one that serves
some and not others. The time counts while the worker's steps go on. A sequence may wait in the engine's queue for
longer, as long as the worker says that any does, and then it is moved only to where there is room.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenwire.coordinator.fleet.outliers import PREFILL_S_PER_TOKEN, OutlierSettings
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.workload import Workload


@dataclass(slots=True)
class _Wait:
    """For how long a slot has had no token."""

    running_s: float = 0.0
    """While the engine said that nobody waits."""
    queued_s: float = 0.0
    """While it said that some do."""
    allowance_s: float = 0.0
    """What the prompts on the way to the worker may take; of all since the last token, the most."""


@dataclass(frozen=True, slots=True)
class StarvedSlot:
    """One that had no token for longer than it should."""

    slot: int
    waited_s: float
    may_be_queued: bool
    """Whether it may wait in the engine's queue, by what the worker says: then nobody is to blame."""


class StarvationWatch:
    """Watches the slots of one session."""

    def __init__(self, slots: SlotTable, workload: Workload) -> None:
        self.steps = 0
        """Steps of the engine, by its last heartbeat."""
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
        silent = self._slots.mark_silent()
        known, self._waits = self._waits, {}
        starved = []
        for slot in silent:
            wait = self._waits[slot] = known.get(slot) or _Wait()
            if seen == self._seen:
                continue
            tokens = self._workload.prompt_tokens + prompts.get(slot, 0)
            wait.allowance_s = max(wait.allowance_s, tokens * PREFILL_S_PER_TOKEN)
            if self._workload.load.waiting:
                wait.queued_s += elapsed_s
            else:
                wait.running_s += elapsed_s
            waited_s, limit_s = wait.running_s + wait.queued_s, settings.silence_timeout_s + wait.allowance_s
            if wait.running_s > limit_s:
                starved.append(StarvedSlot(slot, waited_s, False))
            elif waited_s > settings.factor * limit_s:
                starved.append(StarvedSlot(slot, waited_s, True))
        return starved
