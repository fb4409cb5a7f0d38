"""Deals a frame out: each slot's tokens to its listener. The hot path."""

import logging
from collections.abc import Callable
from typing import Any

from coordinator.fleet.slots import SlotTable
from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.v1 import inference_pb2 as pb

log = logging.getLogger(__name__)


def deal(frame: pb.StepFrame, slots: SlotTable) -> list[int]:
    """Hand a frame to its listeners and free the slots that it ends. Returns slots whose listeners want no more."""
    listeners = slots.listeners
    broken = [info.slot for info in frame.prefills if not _tell(slots, info.slot, listeners[info.slot].prefilled, info)]
    for scores in frame.logprobs:
        if not _tell(slots, scores.slot, listeners[scores.slot].scored, scores.rows):
            broken.append(scores.slot)
    stopped = _step_mixed(frame, slots) if frame.finishes or frame.counts else _step_plain(frame, slots)
    return stopped + broken if broken else stopped


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
    # One reply that cannot be decoded or written must not end its neighbours.
    log.error("slot %d broke", slot, exc_info=error)
    told = error if isinstance(error, TokenwireError) else EngineFailed(f"The reply could not be processed: {error}")
    slots.listeners[slot].fail(told)
