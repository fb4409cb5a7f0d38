"""Cuts frames that would take long to dispatch into parts, so that the event loop has other work in between."""

from collections.abc import Iterable, Iterator

from tokenwire.v1 import inference_pb2 as pb

MOST_TOKENS = 4096
"""Of a part: some milliseconds."""
_SCORED_TOKENS = 16
"""What a log-probability costs in tokens: it is decoded, and written as JSON of its own."""


def is_large(frame: pb.StepFrame) -> bool:
    """Return whether a frame is to be cut: with log-probabilities of many tokens, or merged of very many steps."""
    return len(frame.token_ids) > MOST_TOKENS or (
        bool(frame.logprobs)
        and len(frame.token_ids) + _SCORED_TOKENS * sum([len(each.rows.token_ids) for each in frame.logprobs])
        > MOST_TOKENS
    )


def parts_of(frame: pb.StepFrame) -> Iterator[pb.StepFrame]:
    """Yield frames that are one together: all tokens in order, each slot's end with or after its last ones."""
    prefills = {info.slot: info for info in frame.prefills}
    rows = _rows_by_slot(frame)
    finishes = {finish.slot: finish for finish in frame.finishes}
    part, room, start = _empty(frame), MOST_TOKENS, 0
    for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=True):
        if slot in prefills:
            part.prefills.append(prefills.pop(slot))
        scores = rows.get(slot, ())
        cost = 1 + _SCORED_TOKENS * max((each.width for each in scores), default=0)
        done = 0
        while True:
            taken = min(count - done, max(1, room // cost))
            part.slots.append(slot)
            part.counts.append(taken)
            part.token_ids.extend(frame.token_ids[start + done : start + done + taken])
            part.sampled_logprobs.extend(frame.sampled_logprobs[start + done : start + done + taken])
            for each in _rows_between(scores, done, done + taken):
                part.logprobs.append(pb.Logprobs(slot=slot, rows=each))
            room, done = room - taken * cost, done + taken
            if done == count:
                break
            yield part
            part, room = _empty(frame), MOST_TOKENS
        if slot in finishes:
            part.finishes.append(finishes.pop(slot))
        start += count
        if room <= 0:
            yield part
            part, room = _empty(frame), MOST_TOKENS
    part.prefills.extend(prefills.values())
    part.finishes.extend(finishes.values())
    yield part


def _empty(frame: pb.StepFrame) -> pb.StepFrame:
    return pb.StepFrame(weight_version=frame.weight_version)


def _rows_by_slot(frame: pb.StepFrame) -> dict[int, list[pb.LogprobRows]]:
    rows: dict[int, list[pb.LogprobRows]] = {}
    for each in frame.logprobs:
        rows.setdefault(each.slot, []).append(each.rows)
    return rows


def _rows_between(scores: Iterable[pb.LogprobRows], start: int, end: int) -> Iterator[pb.LogprobRows]:
    """Yield the rows of some of a slot's tokens: rows of one width stay together."""
    for rows in scores:
        count = len(rows.token_ids) // rows.width
        first, last = max(start, 0), min(end, count)
        if first < last:
            yield pb.LogprobRows(
                width=rows.width,
                token_ids=rows.token_ids[first * rows.width : last * rows.width],
                logprobs=rows.logprobs[first * rows.width : last * rows.width],
                sampled_ranks=rows.sampled_ranks[first:last],
            )
        start, end = start - count, end - count
