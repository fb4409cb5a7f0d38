"""Counts what a sequence takes of its tenant's share while it runs, and corrects what was assumed when it started."""

from collections.abc import Callable

from tokenwire.coordinator.fleet.slots import ForwardingListener, SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

REPLY_TOKENS = 256
"""The length of a reply is unknown: its tokens are counted in advance, so many at a time."""
_CACHED_COST = 0.1
"""Of a prompt token that a worker had in its cache."""


class WorkMeter(ForwardingListener):
    """A slot listener that passes everything on."""

    __slots__ = ("_charge", "_charged", "_counts_prompt", "_generated", "_open")

    def __init__(self, listener: SlotListener, charge: Callable[[float], None]) -> None:
        """`charge` is called with work in tokens, negative if less was needed than was assumed."""
        super().__init__(listener)
        self._charge = charge
        self._charged = self._generated = 0
        self._counts_prompt = self._open = False

    def begin(self, counts_prompt: bool) -> None:
        """Start: the first tokens of the reply are counted, and all of the prompt if it counts for this sequence."""
        self._open, self._charged, self._counts_prompt = True, REPLY_TOKENS, counts_prompt

    def settle(self) -> None:
        """End: only what was generated counts. Safe at any time, more than once."""
        if self._open:
            self._open = False
            self._charge(self._generated - self._charged)

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Take back most of what the prompt's cached tokens counted."""
        if self._counts_prompt:
            self._counts_prompt = False
            self._charge((_CACHED_COST - 1) * info.cached_tokens)
        super().prefilled(info)

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Count tokens; settle if these are the last, unless another worker goes on."""
        self._generated += len(token_ids)
        while self._generated > self._charged and self._open:
            self._charged += REPLY_TOKENS
            self._charge(REPLY_TOKENS)
        if finish is not None and finish.handed_back:
            self._open = False
        stops = self._listener.step(token_ids, finish)
        if stops or finish is not None:
            self.settle()
        return stops

    def fail(self, error: TokenwireError) -> None:
        """Count nothing more: another worker may go on."""
        self._open = False
        self._listener.fail(error)
