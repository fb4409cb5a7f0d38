"""This coordinator's estimate of one worker's workload and free capacity."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.v1 import inference_pb2 as pb

SEQUENCE_TOKENS = 32
"""Assumed cost of a running sequence: it slows every step of the others a little."""
QUEUED_TOKENS = 512
"""Assumed cost of a sequence that waits in the worker for its turn or for memory, or whose prompt is unknown here."""
_MEMORY_FULL = 0.95
_UNLIMITED = 1_000_000
"""The capacity of a worker that announces no maximum."""
_INPUTS_A_REPLY = 64
"""A pooled input is computed in a step or a few, a reply in hundreds, and clients send inputs in batches of as many."""
MOST_SEQUENCES = 16_384
"""More than any engine runs at a time: what a worker claims beyond that is not believed."""
_LEAD_SHARE = 16
_LEAST_LEAD = 2
_HALF_OPEN_SEQUENCES = 8
"""Maximum sequences of a worker after a loss, until it has generated a token."""
_FULL_CACHE = 0.9
_STALE_S = 2.0
"""Workers report their load with each step and twice a second; older reports are ignored."""
MOST_PROMPT_TOKENS = 32 * 1024
"""Of a tenant where there are several, before the last one that it sends: some steps of an engine."""
_PROMPT_TOKENS_PER_PLACE = 128
"""As many for each place, if that is more: a worker with many has several engines, or a fast one."""


class PromptsAhead:
    """The prompts that one worker has not computed yet, by slot.

    An engine computes prompts in the order in which they come. Whoever sends very many at once would have it to
    themselves for as long as these take, however many places are free.
    """

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        """By slot, until the slot's first token or its end."""
        self.total = 0
        """Tokens of all."""
        self._tenants: dict[int, str] = {}
        """By slot, where there are several."""
        self._of_tenant = Counter[str]()

    def add(self, slots: Sequence[int], tokens: Sequence[int], tenant: str = "") -> None:
        """Add prompts with the tokens to compute of each. tenant: empty where there is only one."""
        self.tokens.update(zip(slots, tokens, strict=True))
        added = sum(tokens)
        self.total += added
        if tenant:
            self._tenants.update(dict.fromkeys(slots, tenant))
            self._of_tenant[tenant] += added

    def remove(self, slot: int) -> None:
        """Remove a slot's prompt, if it has one."""
        tokens = self.tokens.pop(slot, 0)
        self.total -= tokens
        if self._tenants and (tenant := self._tenants.pop(slot, "")):
            self._of_tenant[tenant] -= tokens
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]

    def clear(self) -> None:
        """Remove all."""
        self.tokens.clear()
        self._tenants.clear()
        self._of_tenant.clear()
        self.total = 0

    def has_room(self, tenant: str, places: int = 0) -> bool:
        """Return whether a tenant may send another prompt to a worker that runs so many sequences at a time."""
        return self._of_tenant[tenant] < max(MOST_PROMPT_TOKENS, _PROMPT_TOKENS_PER_PLACE * places)


class Workload:
    """Prompt tokens and sequences: this coordinator's own, and others' by the worker's load reports."""

    def __init__(self, slots: SlotTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._clock = clock
        self.prompts = PromptsAhead()
        self._max_sequences = 0
        self.capacity = 0
        """How many sequences the worker runs at a time; 0 before it was ever connected."""
        self.usual_queue = 0
        """How many sequences may wait for it: about as long as one reply takes."""
        self.tokens = 0
        """Total tokens received."""
        self.load = pb.Load()
        """The worker's last load report."""
        self.unseen = 0
        """Sequences sent since then."""
        self._load_at = 0.0
        self._own_at_load = 0

    def begin(self, max_sequences: int, load: pb.Load, pools: bool = False) -> None:
        """Reset for a new session; `max_sequences` is how many the worker runs at a time, 0 if unknown."""
        self.prompts.clear()
        max_sequences = min(max_sequences, MOST_SEQUENCES)
        self._max_sequences = max_sequences
        self.capacity = max_sequences or _UNLIMITED
        self.usual_queue = self.capacity * (_INPUTS_A_REPLY if pools else 1)
        self.on_load(load)

    def on_frame(self, frame: pb.StepFrame) -> None:
        """Update from a frame, before it is dispatched."""
        self.tokens += len(frame.token_ids)
        for info in frame.prefills:
            self.on_prefilled(info.slot)
        for finish in frame.finishes:
            self.on_prefilled(finish.slot)
        self.on_load(frame.load, len(frame.finishes))

    def on_load(self, load: pb.Load, ended: int = 0) -> None:
        """Record a load report; `ended` is how many of the open slots it no longer includes."""
        if not 0.0 <= load.kv_cache_usage <= 1.0:
            load = _sane(load)
        self.load, self._load_at, self._own_at_load = load, self._clock(), self._slots.open - ended
        self.unseen = 0

    def on_submit(self, slots: Sequence[int], tokens: int, tenant: str = "") -> None:
        """Add a request's sequences, and the prompt tokens to compute. tenant: empty where there is only one."""
        self.unseen += len(slots)
        self.prompts.add(slots[:1], (tokens,), tenant)

    def on_pool(self, slots: Sequence[int], tokens: Sequence[int], tenant: str = "") -> None:
        """Add inputs, each with its tokens to compute."""
        self.unseen += len(slots)
        self.prompts.add(slots, tokens, tenant)

    def on_prefilled(self, slot: int) -> None:
        """Remove a slot's prompt."""
        self.prompts.remove(slot)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of prompts in flight."""
        return self.prompts.total

    def has_room_for_prompt(self, tenant: str) -> bool:
        """Return whether a tenant may send another prompt, where there are several."""
        return self.prompts.has_room(tenant, self._max_sequences)

    @property
    def sequences(self) -> int:
        """Sequences running or waiting there, this coordinator's and others'."""
        return self._slots.open + self._others()

    def free_capacity(self, half_open: bool = False) -> int:
        """Return how many more sequences may be sent to a ready worker; zero or less: none.

        A few more than it runs at a time (the lead), so that a sequence that ends is replaced in the next step.
        half_open: the worker was lost, and a few requests probe it.
        """
        sequences = self._slots.open + self._others()
        if half_open:
            return min(self.capacity, _HALF_OPEN_SEQUENCES) - sequences
        if not self._max_sequences:
            return self.capacity
        lead = max(_LEAST_LEAD, self._max_sequences // _LEAD_SHARE)
        load, free = self.load, self._max_sequences + lead - sequences
        if self._slots.open and load.waiting and load.kv_cache_usage >= _FULL_CACHE:
            # The worker's limit is memory, not its maximum of sequences.
            free = min(free, lead - load.waiting - self.unseen)
        return free

    def ahead(self) -> int:
        """Return the work ahead of a new request, in prompt tokens to compute."""
        others, load = self._others(), self.load
        sequences = self._slots.open + others
        waiting = max(0, load.waiting - len(self.prompts.tokens)) if others else 0
        if load.kv_cache_usage > _MEMORY_FULL and self._slots.open:
            waiting = load.waiting
        if self._max_sequences:
            waiting = max(waiting, sequences + 1 - self._max_sequences)
        return self.prompts.total + sequences * SEQUENCE_TOKENS + waiting * QUEUED_TOKENS

    def _others(self) -> int:
        load = self.load
        others = load.running + load.waiting - self._own_at_load
        return others if others > 0 and self._clock() - self._load_at < _STALE_S else 0


def _sane(load: pb.Load) -> pb.Load:
    """Return a load whose share is one, in place of a number that has no JSON, or that compares with none."""
    usage = load.kv_cache_usage
    return pb.Load(running=load.running, waiting=load.waiting, kv_cache_usage=min(1.0, usage) if usage > 0 else 0.0)
