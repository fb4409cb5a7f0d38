"""What sequences have done so far, as a witness of the queue sees it: work that counts for their tenants' shares."""

import math

from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

_REPLY_TOKENS = 256
"""What a choice counts as in advance, and as often as it has generated so many."""
_CACHED_COST = 0.1


class ObservedSequence:
    """Passes on what a sequence gets, and keeps how much it was."""

    def __init__(self, listener: SlotListener, prompt_tokens: int) -> None:
        self._listener = listener
        self._prompt_tokens: float = prompt_tokens
        """Those that count for this sequence."""
        self._counts_prompt = prompt_tokens > 0
        self._generated = 0

    @property
    def gained(self) -> int:
        """Return what the sequence says."""
        return self._listener.gained

    @property
    def cached_tokens(self) -> int:
        """Return what the sequence says."""
        return self._listener.cached_tokens

    def work(self, runs: bool) -> float:
        """Return the work so far; `runs`: it still has its worker."""
        in_advance = _REPLY_TOKENS * max(1, math.ceil(self._generated / _REPLY_TOKENS))
        return self._prompt_tokens + (in_advance if runs else self._generated)

    @property
    def prompt_in_advance(self) -> float:
        """What its prompt counts for until it is known how much of it is cached."""
        return (1 - _CACHED_COST) * self._prompt_tokens if self._counts_prompt else 0.0

    def forget_prompt(self) -> None:
        """Count no prompt: nobody waited when it was computed, or began to be."""
        self._counts_prompt, self._prompt_tokens = False, 0

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Count cached tokens as a tenth."""
        if self._counts_prompt:
            self._counts_prompt = False
            self._prompt_tokens -= (1 - _CACHED_COST) * info.cached_tokens
        self._listener.prefilled(info)

    def scored(self, rows: pb.LogprobRows) -> None:
        """Pass on."""
        self._listener.scored(rows)

    def weights(self, version: str) -> None:
        """Pass on."""
        self._listener.weights(version)

    def resumed(self) -> None:
        """Pass on."""
        self._listener.resumed()

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Count tokens."""
        self._generated += len(token_ids)
        return self._listener.step(token_ids, finish)

    def fail(self, error: TokenwireError) -> None:
        """Pass on."""
        self._listener.fail(error)


class ObservedPart:
    """The sequences of a request that were sent to one worker."""

    def __init__(self, handle: PlacedRequest, weight: int) -> None:
        """`handle` has observed sequences; `weight` is their tenant's."""
        self._handle = handle
        self._weight = weight

    @property
    def runs(self) -> bool:
        """Whether any of them still has its worker."""
        return self.in_advance > 0

    @property
    def in_advance(self) -> float:
        """What those count that still have their worker, when requests begin to wait."""
        handle = self._handle
        return _REPLY_TOKENS * sum(map(handle.session.listens, handle.slots, handle.listeners)) / self._weight

    @property
    def may_return(self) -> float:
        """By how much their work may become less."""
        prompts = 0.0
        for sequence in self._handle.listeners:
            assert isinstance(sequence, ObservedSequence)
            prompts += sequence.prompt_in_advance
        return self.in_advance + prompts / self._weight

    def forget_prompt(self) -> None:
        """Count their prompt no longer."""
        for sequence in self._handle.listeners:
            assert isinstance(sequence, ObservedSequence)
            sequence.forget_prompt()

    def work(self) -> float:
        """Return their work so far, relative to the weight."""
        session, work = self._handle.session, 0.0
        for slot, sequence in zip(self._handle.slots, self._handle.listeners, strict=True):
            assert isinstance(sequence, ObservedSequence)
            work += sequence.work(session.listens(slot, sequence))
        return work / self._weight
