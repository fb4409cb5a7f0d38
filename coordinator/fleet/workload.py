"""What one worker has to do, and how much more it can take, as far as this coordinator can tell."""

import time
from collections.abc import Callable, Sequence

from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.v1 import inference_pb2 as pb

SEQUENCE_TOKENS = 32
"""What a running sequence is taken to cost: it slows every step of those beside it a little."""
QUEUED_TOKENS = 512
"""What a sequence is taken to cost that waits for a place or for memory, or whose prompt is not known here."""
_MEMORY_FULL = 0.95
_UNLIMITED = 1_000_000
"""The capacity of a worker that does not say how many sequences it runs at a time."""
_LEAD_SHARE = 16
_LEAST_LEAD = 2
_HALF_OPEN_SEQUENCES = 8
"""Sequences that a worker gets after a loss until it has made a token."""
_FULL_CACHE = 0.9
_STALE_S = 2.0
"""Workers tell their load with each step and twice a second; what a silent one said before does not hold."""


class Workload:
    """Prompt tokens to compute, from here and by what the worker says of all coordinators' sequences."""

    def __init__(self, slots: SlotTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self._prompts: dict[int, int] = {}
        """Tokens of prompts on their way, by slot; they go with the slot's first tokens or its end."""
        self._prompt_tokens = 0
        self._places = 0
        self.capacity = 0
        """How many sequences the worker runs at a time; 0 before it was ever connected."""
        self.tokens = 0
        """Tokens that came from there, ever."""
        self.load = pb.Load()
        """As the worker told it last."""
        self.unseen = 0
        """Sequences sent since then."""
        self._load_at = 0.0
        self._own_at_load = 0

    def begin(self, places: int, load: pb.Load) -> None:
        """Start over with a worker that runs so many sequences at the same time; 0: nobody knows."""
        self._prompts.clear()
        self._prompt_tokens = 0
        self._places = places
        self.capacity = places or _UNLIMITED
        self.on_load(load)

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Take what a frame says, before it is dealt out."""
        self.tokens += len(frame.token_ids)
        for info in frame.prefills:
            self.on_prefilled(info.slot)
        for finish in frame.finishes:
            self.on_prefilled(finish.slot)
        self.on_load(frame.load, len(frame.finishes))

    def on_load(self, load: pb.Load, ended: int = 0) -> None:
        """Take a worker's load; so many of the slots that are open have ended for it."""
        self.load, self._load_at, self._own_at_load = load, self._clock(), self._slots.open - ended
        self.unseen = 0

    def on_submit(self, slots: Sequence[int], tokens: int) -> None:
        """Count a request's sequences, and its prompt, of which so many tokens are to be computed."""
        self.unseen += len(slots)
        self._prompts[slots[0]] = tokens
        self._prompt_tokens += tokens

    def on_prefilled(self, slot: int) -> None:
        """Count a slot's prompt no longer."""
        self._prompt_tokens -= self._prompts.pop(slot, 0)

    @property
    def sequences(self) -> int:
        """Sequences that run or wait there, from here and from others."""
        return self._slots.open + self._others()

    def free_capacity(self, half_open: bool = False) -> int:
        """Return how many more sequences may be sent to a ready worker; zero or less: none.

        A few more than it runs at a time: the lead, with which it fills a place in the step that freed it.
        half_open: the worker was lost, and a few requests show whether it is well again.
        """
        sequences = self._slots.open + self._others()
        if half_open:
            return min(self.capacity, _HALF_OPEN_SEQUENCES) - sequences
        if not self._places:
            return self.capacity
        lead = max(_LEAST_LEAD, self._places // _LEAD_SHARE)
        load, free = self.load, self._places + lead - sequences
        if self._slots.open and load.waiting and load.kv_cache_usage >= _FULL_CACHE:
            # The worker has run out of memory, not of places.
            free = min(free, lead - load.waiting - self.unseen)
        return free

    def ahead(self) -> int:
        """Return the work ahead of a new request, in prompt tokens to compute."""
        others, load = self._others(), self.load
        sequences = self._slots.open + others
        waiting = max(0, load.waiting - len(self._prompts)) if others else 0
        if load.kv_cache_usage > _MEMORY_FULL and self._slots.open:
            waiting = load.waiting
        if self._places:
            waiting = max(waiting, sequences + 1 - self._places)
        return self._prompt_tokens + sequences * SEQUENCE_TOKENS + waiting * QUEUED_TOKENS

    def _others(self) -> int:
        load = self.load
        others = load.running + load.waiting - self._own_at_load
        return others if others > 0 and self._clock() - self._load_at < _STALE_S else 0
