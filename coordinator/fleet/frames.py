"""Deals a frame out: each slot's tokens to its listener. The hot path."""

import logging
from collections.abc import Callable
from typing import Any

from tokenwire.coordinator.fleet.slots import SlotTable, fail_listener
from tokenwire.errors import ProtocolError, reply_error
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


def dispatch(frame: pb.StepFrame, slots: SlotTable, has_new_weights: bool = False) -> list[int]:
    """Hand a frame to its listeners and free the slots that it ends. Returns slots whose listeners want no more.

    Raises ProtocolError for what a worker must not send; listeners have what came before it.
    """
    _check_lengths(frame)
    broken = _tell_weights(frame.weight_version, slots) if has_new_weights else []
    for info in frame.prefills:
        if not _tell(slots, info.slot, slots.holder(info.slot).prefilled, info):
            broken.append(info.slot)
    for scores in frame.logprobs:
        if not _tell(slots, scores.slot, slots.holder(scores.slot).scored, scores.rows):
            broken.append(scores.slot)
    stopped = _step_mixed(frame, slots) if frame.finishes or frame.counts else _step_plain(frame, slots)
    # A slot that broke may have ended in the same frame, or broken twice.
    return stopped + [slot for slot in set(broken) if slots.is_open(slot)] if broken else stopped


def _check_lengths(frame: pb.StepFrame) -> None:
    slots, counts, token_ids = len(frame.slots), frame.counts, len(frame.token_ids)
    if (len(counts), sum(counts)) != (slots, token_ids) if counts else slots != token_ids:
        raise ProtocolError(
            f"the worker sent {token_ids} tokens in a frame for {slots} slots with {len(counts)} counts"
        )


def _tell_weights(version: str, slots: SlotTable) -> list[int]:
    taken = [slot for slot in range(len(slots.listeners)) if slots.is_open(slot)]
    return [slot for slot in taken if not _tell(slots, slot, slots.holder(slot).weights, version)]


def _step_plain(frame: pb.StepFrame, slots: SlotTable) -> list[int]:
    """Hand out the usual frame: one token for each slot, and no sequence ends."""
    stopped: list[int] = []
    listeners = slots.listeners
    for slot, token_id in zip(frame.slots, frame.token_ids, strict=True):
        try:
            if listeners[slot].step([token_id], None):
                stopped.append(slot)
        except Exception as error:
            _break(slots, slot, error)
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
        wants_no_more = _step(slots, slot, token_ids[start:end], finish)
        if finish is not None:
            slots.release(slot)
        elif wants_no_more:
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
        _break(slots, slot, error)
        return True


def _tell(slots: SlotTable, slot: int, hear: Callable[[Any], None], what: Any) -> bool:
    try:
        hear(what)
    except Exception as error:
        _break(slots, slot, error)
        return False
    return True


def _break(slots: SlotTable, slot: int, error: Exception) -> None:
    """End a reply that cannot be decoded or written, and not its neighbours. Raises ProtocolError for a free slot."""
    listener = slots.holder(slot)
    log.error("slot %d broke", slot, exc_info=error)
    slots.give_up(slot)
    fail_listener(listener, reply_error(error))
