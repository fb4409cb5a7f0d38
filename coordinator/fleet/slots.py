"""Slots of one session: small integers, each with the listener that its tokens go to."""

import logging
from typing import Protocol

from tokenwire.coordinator.fleet.session_stats import SessionStats
from tokenwire.errors import ProtocolError, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


class SlotListener(Protocol):
    """Receives one sequence. Exactly one ending: `step` with a finish, `step` returning True, or `fail`."""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Hear how the prompt was computed, before the first tokens."""

    def scored(self, rows: pb.LogprobRows) -> None:
        """Take the log-probabilities of the tokens that the next step brings, if the request asked for them."""

    def weights(self, version: str) -> None:
        """Hear which weights make the tokens from now on: first of all, and when that changes."""

    def resumed(self) -> None:
        """Hear that another worker goes on with the sequence."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Take new tokens, with the finish if these are the last. Return True to want no more."""

    def fail(self, error: TokenwireError) -> None:
        """Hear that no more tokens will come because something went wrong."""


class DiscardListener:
    """Stands in a slot that was given up until the worker's terminal event arrives; counts what comes in vain."""

    def __init__(self, stats: SessionStats | None = None) -> None:
        self.stats = stats or SessionStats()

    def prefilled(self, info: pb.PrefillInfo) -> None:
        pass

    def scored(self, rows: pb.LogprobRows) -> None:
        pass

    def weights(self, version: str) -> None:
        pass

    def resumed(self) -> None:
        pass

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        self.stats.overshoot_tokens += len(token_ids)
        return False

    def fail(self, error: TokenwireError) -> None:
        pass


class _Free(DiscardListener):
    """Stands in a slot that nobody has: the hot path need not ask whether a slot is open."""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        raise ProtocolError("the worker sent a prefill for a slot that is not open")

    def scored(self, rows: pb.LogprobRows) -> None:
        raise ProtocolError("the worker sent log-probabilities for a slot that is not open")

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        raise ProtocolError("the worker sent tokens for a slot that is not open")


_FREE: SlotListener = _Free()


def fail_listener(listener: SlotListener, error: TokenwireError) -> None:
    """Fail a listener; what it raises itself is logged, because others wait for theirs."""
    try:
        listener.fail(error)
    except Exception:
        log.exception("a reply could not be failed")


class SlotTable:
    """Maps slots to listeners. A slot is reused only after `release`.

    A worker that names a slot which is not open has lost count, or this side has: whose tokens come next nobody knows.
    """

    def __init__(self) -> None:
        self.listeners: list[SlotListener] = []
        """Indexed by slot; read directly by the frame loop."""
        self._free: list[int] = []
        self.open = 0
        """Slots without their terminal event, given up or not."""
        self.discard = DiscardListener()
        """For slots that are given up."""

    def take(self, listener: SlotListener) -> int:
        """Give a listener a slot."""
        self.open += 1
        if self._free:
            slot = self._free.pop()
            self.listeners[slot] = listener
            return slot
        self.listeners.append(listener)
        return len(self.listeners) - 1

    def is_open(self, slot: int) -> bool:
        """Return whether a slot's terminal event has yet to come."""
        return slot < len(self.listeners) and self.listeners[slot] is not _FREE

    def holder(self, slot: int) -> SlotListener:
        """Return the listener of an open slot. Raises ProtocolError for another one."""
        if not self.is_open(slot):
            raise ProtocolError(f"the worker named slot {slot}, which is not open")
        return self.listeners[slot]

    def give_up(self, slot: int) -> None:
        """Have nobody hear what still comes for a slot."""
        self.listeners[slot] = self.discard

    def release(self, slot: int) -> SlotListener:
        """Free a slot whose terminal event arrived; returns its listener. Raises ProtocolError if it was free."""
        listener = self.holder(slot)
        self.listeners[slot] = _FREE
        self._free.append(slot)
        self.open -= 1
        return listener

    def release_all(self) -> list[SlotListener]:
        """Free all slots, because the session is gone; returns listeners that still wait."""
        waiting = [listener for listener in self.listeners if not isinstance(listener, DiscardListener)]
        self.listeners, self._free, self.open = [], [], 0
        return waiting
