"""Cuts frames that would take long to dispatch into parts, so that the event loop has other work in between."""

from collections.abc import Iterable, Iterator

from tokenwire.v1 import inference_pb2 as pb

MOST_TOKENS = 4096
"""Of a part: some milliseconds."""
_SCORED_TOKENS = 2
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
    finishes = {finish.slot: finish for finish in frame.finishes}
    scores: dict[int, list[pb.Logprobs]] = {}
    for each in frame.logprobs:
        scores.setdefault(each.slot, []).append(each)
    token_ids, sampled = frame.token_ids[:], frame.sampled_logprobs[:]
    part, room, start = _FramePart(frame.weight_version), MOST_TOKENS, 0
    for slot, count in zip(frame.slots[:], frame.counts or [1] * len(frame.slots), strict=True):
        if slot in prefills:
            part.prefills.append(prefills.pop(slot))
        rows = scores.get(slot, ())
        cost = 1 + _SCORED_TOKENS * max([each.rows.width for each in rows], default=0)
        done = 0
        while True:
            taken = min(count - done, max(1, room // cost))
            first, last = start + done, start + done + taken
            part.add(slot, token_ids[first:last], sampled[first:last])
            part.logprobs += rows if taken == count else _rows_between(rows, done, done + taken)
            room, done = room - taken * cost, done + taken
            if done == count:
                break
            yield part.frame()
            part, room = _FramePart(frame.weight_version), MOST_TOKENS
        if slot in finishes:
            part.finishes.append(finishes.pop(slot))
        start += count
        if room <= 0:
            yield part.frame()
            part, room = _FramePart(frame.weight_version), MOST_TOKENS
    part.prefills += prefills.values()
    part.finishes += finishes.values()
    yield part.frame()


class _FramePart:
    """A part as lists, to which adding takes a fraction of what it takes with a message."""

    __slots__ = ("_counts", "_sampled", "_slots", "_token_ids", "_weight_version", "finishes", "logprobs", "prefills")

    def __init__(self, weight_version: str) -> None:
        self._weight_version = weight_version
        self._slots: list[int] = []
        self._counts: list[int] = []
        self._token_ids: list[int] = []
        self._sampled: list[float] = []
        self.prefills: list[pb.PrefillInfo] = []
        self.logprobs: list[pb.Logprobs] = []
        self.finishes: list[pb.Finish] = []

    def add(self, slot: int, token_ids: list[int], sampled: list[float]) -> None:
        """Add tokens of a slot."""
        self._slots.append(slot)
        self._counts.append(len(token_ids))
        self._token_ids += token_ids
        self._sampled += sampled

    def frame(self) -> pb.StepFrame:
        """Return it as a message."""
        return pb.StepFrame(
            slots=self._slots,
            counts=self._counts,
            token_ids=self._token_ids,
            sampled_logprobs=self._sampled,
            prefills=self.prefills,
            logprobs=self.logprobs,
            finishes=self.finishes,
            weight_version=self._weight_version,
        )


def _rows_between(scores: Iterable[pb.Logprobs], start: int, end: int) -> Iterator[pb.Logprobs]:
    """Yield the rows of some of a slot's tokens: rows of one width stay together."""
    for each in scores:
        rows = each.rows
        count = len(rows.token_ids) // rows.width
        first, last = max(start, 0), min(end, count)
        if first < last:
            some = pb.LogprobRows(
                width=rows.width,
                token_ids=rows.token_ids[first * rows.width : last * rows.width],
                logprobs=rows.logprobs[first * rows.width : last * rows.width],
                sampled_ranks=rows.sampled_ranks[first:last],
            )
            yield pb.Logprobs(slot=each.slot, rows=some)
        start, end = start - count, end - count
