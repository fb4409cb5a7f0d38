"""Dispatches a frame: each slot's tokens to its listener. The hot path."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from tokenwire.coordinator.fleet.slots import SlotTable, fail_listener
from tokenwire.errors import EngineFailed, ProtocolError, TokenwireError, reply_error
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


def dispatch(frame: pb.StepFrame, slots: SlotTable, has_new_weights: bool = False) -> list[int]:
    """Call the listeners of a frame and free the slots that it ends; return slots to abort: their listeners stopped.

    Raises ProtocolError for what a worker must not send; listeners were called with what came before it.
    """
    named = check_arrays(frame)
    slots.begun |= named
    if slots.silent:
        slots.on_tokens(named)
    if slots.runs.recorded and (not named or max(named) < len(slots.listeners)):
        slots.runs.on_frame(frame)
    failed = _dispatch_weights(frame.weight_version, slots) if has_new_weights else []
    if slots.scored:
        failed += _fail_unscored(frame, slots, named)
    for info in frame.prefills:
        if not _call(slots, info.slot, slots.holder(info.slot).prefilled, info):
            failed.append(info.slot)
    for scores in frame.logprobs:
        try:
            slots.listeners[scores.slot].scored(scores.rows)
        except Exception as error:
            _fail_slot(slots, scores.slot, error)
            failed.append(scores.slot)
    stopped = _step_mixed(frame, slots) if frame.finishes or frame.counts else _step_plain(frame, slots)
    # A slot that failed may have ended in the same frame, or failed twice.
    return stopped + [slot for slot in set(failed) if slots.is_open(slot)] if failed else stopped


def _fail_unscored(frame: pb.StepFrame, slots: SlotTable, named: set[int]) -> list[int]:
    """Fail slots whose first tokens lack log-probabilities, before anybody has these; return the slots.

    Another worker may serve them, and then this one is to blame.
    """
    begin = slots.scored & named
    slots.scored -= begin
    missing = begin.difference(scores.slot for scores in frame.logprobs)
    for slot in missing:
        _fail_slot(slots, slot, EngineFailed("The worker did not send log-probabilities for each token."))
    return list(missing)


def check_arrays(frame: pb.StepFrame) -> set[int]:
    """Return the slots that have tokens. Raises ProtocolError if the arrays do not fit."""
    slots, counts, token_ids = len(frame.slots), frame.counts, len(frame.token_ids)
    if (len(counts), sum(counts)) != (slots, token_ids) if counts else slots != token_ids:
        raise ProtocolError(
            f"the worker sent {token_ids} tokens in a frame for {slots} slots with {len(counts)} counts"
        )
    if frame.sampled_logprobs and len(frame.sampled_logprobs) != token_ids:
        scores = len(frame.sampled_logprobs)
        raise ProtocolError(f"the worker sent {scores} log-probabilities beside {token_ids} tokens")
    named = set(frame.slots[:])  # a list of its own is faster to go through
    if len(named) != slots:
        raise ProtocolError("the worker named a slot twice in one frame")
    if counts and 0 in counts:
        named.difference_update(slot for slot, count in zip(frame.slots, counts, strict=True) if not count)
    return named


def check_sizes(frame: pb.StepFrame, slots: SlotTable) -> None:
    """Check what a frame has against the slots that are open, before anything is made of it. Raises ProtocolError."""
    most = max(len(frame.slots), len(frame.finishes), len(frame.prefills))
    if most > slots.open:
        raise ProtocolError(f"the worker named {most} slots in one frame: {most - slots.open} or more are not open")
    if len(frame.logprobs) > len(frame.token_ids):
        raise ProtocolError(
            f"the worker sent log-probabilities {len(frame.logprobs)} times for {len(frame.token_ids)} tokens"
        )


def check_large(frame: pb.StepFrame, slots: SlotTable) -> None:
    """Check that a large frame has no more than its slots may get. Raises ProtocolError."""
    check_arrays(frame)
    counts = dict(zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=True))
    for slot, count in counts.items():
        slots.holder(slot)
        slots.allowance[slot] -= count
        if slots.allowance[slot] < 0:
            raise ProtocolError(f"the worker sent {count} tokens for slot {slot}, more than were asked for")
    scored = Counter[int]()
    for each in frame.logprobs:
        rows = each.rows
        if len(rows.token_ids) != len(rows.logprobs) or not rows.width or len(rows.token_ids) % rows.width:
            raise ProtocolError(f"the worker sent log-probabilities for slot {each.slot} that are no rows")
        scored[each.slot] += len(rows.token_ids) // rows.width
    for slot, count in scored.items():
        if count > counts.get(slot, 0):
            raise ProtocolError(f"the worker sent {count} rows of log-probabilities for slot {slot}, without tokens")


def _dispatch_weights(version: str, slots: SlotTable) -> list[int]:
    """Call all listeners with a new weight version; return the slots whose listeners raised."""
    taken = [slot for slot in range(len(slots.listeners)) if slots.is_open(slot)]
    return [slot for slot in taken if not _call(slots, slot, slots.holder(slot).weights, version)]


def _step_plain(frame: pb.StepFrame, slots: SlotTable) -> list[int]:
    """Dispatch the usual frame: one token for each slot, and no sequence ends."""
    stopped: list[int] = []
    listeners = slots.listeners
    for slot, token_id in zip(frame.slots[:], frame.token_ids[:], strict=True):
        try:
            if listeners[slot].step([token_id], None):
                stopped.append(slot)
        except Exception as error:
            _fail_slot(slots, slot, error)
            stopped.append(slot)
    return stopped


def _step_mixed(frame: pb.StepFrame, slots: SlotTable) -> list[int]:
    finishes = {finish.slot: finish for finish in frame.finishes}
    if len(finishes) != len(frame.finishes):
        raise ProtocolError("the worker ended a slot twice in one frame")
    token_ids = list(frame.token_ids)
    counts = frame.counts or [1] * len(frame.slots)
    stopped: list[int] = []
    start = 0
    for slot, count in zip(frame.slots, counts, strict=True):
        end = start + count
        finish = finishes.pop(slot, None)
        stops = _step(slots, slot, token_ids[start:end], finish)
        if finish is not None:
            slots.release(slot)
        elif stops:
            stopped.append(slot)
        start = end
    for slot, finish in finishes.items():
        _step(slots, slot, [], finish)
        slots.release(slot)
    return stopped


def _step(slots: SlotTable, slot: int, token_ids: list[int], finish: pb.Finish | None) -> bool:
    try:
        return slots.listeners[slot].step(token_ids, finish)
    except Exception as error:
        _fail_slot(slots, slot, error)
        return True


def _call(slots: SlotTable, slot: int, callback: Callable[[Any], None], argument: Any) -> bool:
    """Call a listener; if it raises, fail its slot and return False."""
    try:
        callback(argument)
    except Exception as error:
        _fail_slot(slots, slot, error)
        return False
    return True


def _fail_slot(slots: SlotTable, slot: int, error: Exception) -> None:
    """End only this reply, which cannot be served on, decoded or written. Raises ProtocolError for a free slot."""
    listener = slots.holder(slot)
    known = isinstance(error, TokenwireError)  # of what the worker sent
    log.error("the listener of slot %d failed: %s", slot, error, exc_info=None if known else error)
    slots.give_up(slot)
    fail_listener(listener, reply_error(error))
