"""Counts what a sequence takes of its tenant's share while it runs, and corrects what was assumed when it started."""

from typing import Protocol

from tokenwire.coordinator.fleet.slots import ForwardingListener, SlotListener
from tokenwire.errors import TokenwireError
from tokenwire.v1 import inference_pb2 as pb

REPLY_TOKENS = 256
"""The length of a reply is unknown: its tokens are counted in advance, so many at a time."""
_CACHED_COST = 0.1
"""Of a prompt token that a worker had in its cache."""


class WorkAccount(Protocol):
    """What work counts for."""

    def charge(self, tokens: float) -> None:
        """Count more work; negative if less was needed than was assumed."""

    def begin_sequence(self) -> None:
        """Count one more sequence that runs."""

    def end_sequence(self) -> None:
        """Count one less."""


class WorkMeter(ForwardingListener):
    """A slot listener that passes everything on."""

    __slots__ = ("_account", "_charged", "_counts_prompt", "_generated", "_open")

    def __init__(self, listener: SlotListener, account: WorkAccount) -> None:
        self._listener = listener
        self._account = account
        self._charged = self._generated = 0
        self._counts_prompt = self._open = False

    def begin(self, counts_prompt: bool) -> None:
        """Start: the first tokens of the reply are counted, and all of the prompt if it counts for this sequence."""
        self._open, self._charged, self._counts_prompt = True, REPLY_TOKENS, counts_prompt
        self._account.begin_sequence()

    def settle(self) -> None:
        """End: only what was generated counts. Safe at any time, more than once."""
        if self._open:
            self._account.charge(self._generated - self._charged)
            self._close()

    def is_of(self, listener: SlotListener) -> bool:
        """Return whether it passes everything on to this listener."""
        return self._listener is listener

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Take back most of what the prompt's cached tokens counted."""
        if self._counts_prompt:
            self._counts_prompt = False
            self._account.charge((_CACHED_COST - 1) * info.cached_tokens)
        super().prefilled(info)

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Count tokens; settle if these are the last, unless another worker goes on."""
        self._generated += len(token_ids)
        while self._generated > self._charged and self._open:
            self._charged += REPLY_TOKENS
            self._account.charge(REPLY_TOKENS)
        if finish is not None and finish.handed_back:
            self._close()
        stops = self._listener.step(token_ids, finish)
        if stops or finish is not None:
            self.settle()
        return stops

    def fail(self, error: TokenwireError) -> None:
        """Count nothing more: another worker may go on."""
        self._close()
        self._listener.fail(error)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._account.end_sequence()
