"""The slots of one session: small integers, each with the listener of its sequence."""

import logging
from typing import Protocol

from tokenwire.coordinator.fleet.kept_places import KeptPlaces
from tokenwire.coordinator.fleet.sampled_tokens import SlotRuns
from tokenwire.coordinator.fleet.session_stats import SessionStats
from tokenwire.errors import ProtocolError, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


class SlotListener(Protocol):
    """Receives one sequence. Exactly one ending: `step` with a finish, `step` returning True, or `fail`."""

    @property
    def gained(self) -> int:
        """Tokens from its current worker, or the last one."""

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the first worker had in its cache; 0 until that is known."""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        """Called before the first tokens with how the prompt was computed."""

    def scored(self, rows: pb.LogprobRows) -> None:
        """Called with the log-probabilities of the next step's tokens, if the request has them enabled."""

    def weights(self, version: str) -> None:
        """Called with the weight version of the following tokens: before anything else, and when it changes."""

    def resumed(self) -> None:
        """Called when another worker continues the sequence."""

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        """Called with new tokens, and the finish if these are the last. Return True to stop the sequence."""

    def fail(self, error: TokenwireError) -> None:
        """Called when the sequence ends with an error."""


class DiscardListener:
    """Occupies an aborted slot until the worker's terminal event, and counts the overshoot tokens."""

    gained = cached_tokens = 0

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
    """Occupies a free slot, so that the hot path need not check whether a slot is open."""

    def prefilled(self, info: pb.PrefillInfo) -> None:
        raise ProtocolError("the worker sent a prefill for a slot that is not open")

    def scored(self, rows: pb.LogprobRows) -> None:
        raise ProtocolError("the worker sent log-probabilities for a slot that is not open")

    def step(self, token_ids: list[int], finish: pb.Finish | None) -> bool:
        raise ProtocolError("the worker sent tokens for a slot that is not open")


_FREE: SlotListener = _Free()


def fail_listener(listener: SlotListener, error: TokenwireError) -> None:
    """Call a listener's `fail`; log what that raises, because other listeners are still to be called."""
    try:
        listener.fail(error)
    except Exception:
        log.exception("ending a reply with an error failed")


class SlotTable:
    """Maps slots to listeners. A slot is reused only after `release`.

    A worker that names a slot which is not open disagrees with this side about the slots: its tokens can no longer be
    attributed, which is a ProtocolError.
    """

    def __init__(self) -> None:
        self.listeners: list[SlotListener] = []
        """Indexed by slot; read directly by the frame loop."""
        self.allowance: list[int] = []
        """Indexed by slot; how many tokens it may still get in frames that are large enough to be checked."""
        self._free: list[int] = []
        self.open = 0
        """Slots without their terminal event, aborted or not."""
        self.given_up = 0
        """Those of them that are aborted."""
        self.discard = DiscardListener()
        """The listener of aborted slots."""
        self.silent: set[int] = set()
        """Those of the slots at the last `mark_silent` that have had no token since."""
        self.begun: set[int] = set()
        """Slots that have had tokens, until their terminal event or their abort."""
        self.kept = KeptPlaces()
        """Those slots whose sequences cannot be taken back."""
        self.scored: set[int] = set()
        """Slots without tokens yet, whose clients asked for log-probabilities."""
        self.runs = SlotRuns()
        """What is sampled for the slots of recorded requests."""

    def take(self, listener: SlotListener, most_tokens: int = 2**32, is_scored: bool = False) -> int:
        """Assign a slot, which gets so many tokens at most, to a listener and return it.

        is_scored: whether its tokens come with log-probabilities.
        """
        self.open += 1
        if self._free:
            slot = self._free.pop()
            self.listeners[slot], self.allowance[slot] = listener, most_tokens
        else:
            slot = len(self.listeners)
            self.listeners.append(listener)
            self.allowance.append(most_tokens)
        if is_scored:
            self.scored.add(slot)
        return slot

    def is_open(self, slot: int) -> bool:
        """Return whether a slot's terminal event is outstanding."""
        return slot < len(self.listeners) and self.listeners[slot] is not _FREE

    def is_awaited(self, slot: int) -> bool:
        """Return whether a slot is open and not aborted."""
        return slot < len(self.listeners) and not isinstance(self.listeners[slot], DiscardListener)

    def holder(self, slot: int) -> SlotListener:
        """Return the listener of an open slot. Raises ProtocolError for any other slot."""
        listener = self.listeners[slot] if slot < len(self.listeners) else _FREE
        if listener is _FREE:
            raise ProtocolError(f"the worker named slot {slot}, which is not open")
        return listener

    def give_up(self, slot: int) -> None:
        """Discard what still arrives for a slot."""
        self.given_up += self.listeners[slot] is not self.discard
        self.silent.discard(slot)
        self.begun.discard(slot)
        self.scored.discard(slot)
        self.listeners[slot] = self.discard
        self.runs.end(slot)

    def release(self, slot: int) -> SlotListener:
        """Free a slot whose terminal event arrived; return its listener. Raises ProtocolError if it was free."""
        listener = self.holder(slot)
        self.listeners[slot] = _FREE
        if slot in self.silent:
            self.silent.remove(slot)
        if slot in self.begun:
            self.begun.remove(slot)
        if slot in self.scored:
            self.scored.remove(slot)
        if slot in self.kept.tenants:
            self.kept.remove(slot)
        if self.runs.recorded:
            self.runs.end(slot)
        self._free.append(slot)
        self.open -= 1
        self.given_up -= listener is self.discard
        assert 0 <= self.given_up <= self.open, "slots were freed that nobody had taken"
        return listener

    def release_all(self) -> list[SlotListener]:
        """Free all slots, because the session ended; return the listeners that have not ended."""
        waiting = [listener for listener in self.listeners if not isinstance(listener, DiscardListener)]
        self.listeners, self.allowance, self._free, self.open, self.given_up = [], [], [], 0, 0
        self.silent.clear()
        self.begun.clear()
        self.scored.clear()
        self.kept.clear()
        self.runs.take_steps()  # what was sampled until now is of the sequences, which go on elsewhere
        self.runs = SlotRuns()
        return waiting

    def mark_silent(self) -> set[int]:
        """Return the slots that have had no token since the last call, and begin anew."""
        silent = self.silent
        self.silent = {slot for slot, each in enumerate(self.listeners) if not isinstance(each, DiscardListener)}
        return silent

    def on_tokens(self, slots: set[int]) -> None:
        """Record slots that had tokens. Costs next to nothing once all have, which is usually one frame."""
        self.silent = self.silent - slots
