"""What sequences have done so far, as a witness of the queue sees it: work that counts for their tenants' shares."""

import math

from tokenwire.coordinator.fleet.placed_request import PlacedRequest
from tokenwire.coordinator.fleet.slots import ForwardingListener, SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

_REPLY_TOKENS = 256
"""What a choice counts as in advance, and as often as it has generated so many."""
_CACHED_COST = 0.1


class ObservedSequence(ForwardingListener):
    """Passes on what a sequence gets, and keeps how much it was."""

    def __init__(self, listener: SlotListener, prompt_tokens: int) -> None:
        super().__init__(listener)
        self._prompt_tokens: float = prompt_tokens
        """Those that count for this sequence."""
        self._counts_prompt = prompt_tokens > 0
        self._generated = 0
        self._ended = self._lost = False

    def work(self, runs: bool) -> float:
        """Return the work so far; `runs`: it still has its worker."""
        ended = self._ended or not (runs or self._lost)
        reply = self._generated if ended else _REPLY_TOKENS * max(1, math.ceil(self._generated / _REPLY_TOKENS))
        return self._prompt_tokens + reply

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Count cached tokens as a tenth."""
        if self._counts_prompt:
            self._counts_prompt = False
            self._prompt_tokens -= (1 - _CACHED_COST) * info.cached_tokens
        super().prefilled(info)

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Count tokens."""
        self._generated += len(token_ids)
        if finish is not None:
            self._lost, self._ended = finish.handed_back, not finish.handed_back
        stops = self._listener.step(token_ids, finish)
        self._ended |= stops and not self._lost
        return stops

    def fail(self, error: TokenwireError) -> None:
        """Keep that it may go on elsewhere."""
        self._lost = not self._ended
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

    def work(self) -> float:
        """Return their work so far, relative to the weight."""
        session, work = self._handle.session, 0.0
        for slot, sequence in zip(self._handle.slots, self._handle.listeners, strict=True):
            assert isinstance(sequence, ObservedSequence)
            work += sequence.work(session.listens(slot, sequence))
        return work / self._weight
