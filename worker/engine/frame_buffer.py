"""Unsent output of one session: later steps merge into an unsent frame, so a slow reader does not make it grow."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange

_MOST_SCORED = 500_000
"""Log-probabilities of a frame: some megabytes. Coordinators do not take events of any size."""
_SCORED_BYTES = 8
"""Of a result what counts as one: a frame has some megabytes of them."""


class FrameBuffer:
    """Collects tokens per slot until they are taken as one frame.

    Bounded by what the open slots can generate: tokens are merged per slot, and a slot
    generates at most a context length. `on_finish` is called with each slot whose terminal event was added.
    """

    __slots__ = (
        "_cache",
        "_events",
        "_finishes",
        "_framed",
        "_heartbeat",
        "_load",
        "_logprobs",
        "_on_finish",
        "_prefills",
        "_ready",
        "_sampled",
        "_scored",
        "_tokens",
        "_weight_version",
    )

    def __init__(self, on_finish: Callable[[int], None] | None = None) -> None:
        self._on_finish = on_finish
        self._tokens: dict[int, list[int]] = {}
        self._finishes: list[pb.Finish] = []
        self._prefills: list[pb.PrefillInfo] = []
        self._logprobs: dict[int, pb.LogprobRows] = {}
        self._sampled: dict[int, list[float]] = {}
        self._cache: CacheChange | None = None
        self._events: list[pb.SessionResponse] = []
        self._heartbeat: pb.Heartbeat | None = None
        self._scored = 0
        self._framed = False
        self._load = pb.Load()
        self._weight_version = ""
        self._ready = asyncio.Event()

    def add_tokens(self, slot: int, token_ids: list[int]) -> None:
        """Add new tokens of a slot; takes ownership of the list."""
        unsent = self._tokens.get(slot)
        if unsent is None:
            self._tokens[slot] = token_ids
        else:
            unsent.extend(token_ids)

    def add_logprobs(self, slot: int, rows: pb.LogprobRows) -> None:
        """Add log-probability rows for tokens that were just added."""
        self._scored += len(rows.token_ids)
        unsent = self._logprobs.get(slot)
        if unsent is None:
            self._logprobs[slot] = rows
        else:
            unsent.MergeFrom(rows)

    def add_sampled(self, slot: int, logprobs: list[float]) -> None:
        """Add the log-probabilities of tokens that were just added, to be sent beside them; takes the list."""
        unsent = self._sampled.get(slot)
        if unsent is None:
            self._sampled[slot] = logprobs
        else:
            unsent.extend(logprobs)

    def add_prefill(self, slot: int, info: pb.PrefillInfo) -> None:
        """Add a slot's prefill info."""
        info.slot = slot
        self._scored += len(info.prompt_logprobs.token_ids)
        self._prefills.append(info)

    def add_finish(self, slot: int, finish: pb.Finish) -> None:
        """Add a slot's terminal event."""
        finish.slot = slot
        self._scored += _size(finish)
        self._finishes.append(finish)
        if self._on_finish is not None:
            self._on_finish(slot)

    def add_event(self, event: pb.SessionResponse) -> None:
        """Queue an event; it is sent before the frame that is being filled."""
        self._events.append(event)
        self._ready.set()

    def add_heartbeat(self, heartbeat: pb.Heartbeat) -> None:
        """Queue a heartbeat, replacing an unsent one; skipped if a frame was sent since the last call."""
        if self._framed:
            self._framed = False
            return
        self._heartbeat = heartbeat
        self._ready.set()

    def add_kv_events(self, change: CacheChange) -> None:
        """Queue a change of the prefix cache; unsent changes are merged into one."""
        if self._cache is None:
            self._cache = CacheChange()
        self._cache.add(change)
        self._ready.set()

    def end_frame(self) -> None:
        """Close the unsent frame before the weights change: a frame has one weight version."""
        while self._tokens or self._finishes:
            self.add_event(pb.SessionResponse(frame=self._take_frame()))

    def flush(self, load: pb.Load, weight_version: str) -> None:
        """Mark the end of a step: what was added may be sent."""
        self._load = load
        self._weight_version = weight_version
        if self._scored > _MOST_SCORED:
            self.end_frame()
        if self._tokens or self._finishes:
            self._ready.set()

    async def take(self) -> list[pb.SessionResponse]:
        """Wait for output and return all of it."""
        await self._ready.wait()
        self._ready.clear()
        events, self._events = self._events, []
        if self._cache is not None:
            events.append(self._cache.to_event())
            self._cache = None
        while self._tokens or self._finishes:
            events.append(pb.SessionResponse(frame=self._take_frame()))
        if self._heartbeat is not None:
            events.append(pb.SessionResponse(heartbeat=self._heartbeat))
            self._heartbeat = None
        return events

    def _take_frame(self) -> pb.StepFrame:
        tokens, self._tokens = self._tokens, {}
        lists = tokens.values()
        counts = [*map(len, lists)]
        finishes = self._finishes if self._scored <= _MOST_SCORED else _first(self._finishes)
        frame = pb.StepFrame(
            slots=tokens.keys(),
            counts=() if counts.count(1) == len(counts) else counts,
            token_ids=chain.from_iterable(lists),
            finishes=finishes,
            prefills=self._prefills,
            logprobs=[pb.Logprobs(slot=slot, rows=rows) for slot, rows in self._logprobs.items()],
            load=self._load,
            weight_version=self._weight_version,
        )
        if self._sampled:
            sampled, self._sampled = self._sampled, {}
            frame.sampled_logprobs.extend(chain.from_iterable(_beside(tokens, counts, sampled)))
        self._finishes = self._finishes[len(finishes) :]
        self._prefills, self._logprobs, self._framed = [], {}, True
        self._scored = sum([_size(finish) for finish in self._finishes])
        return frame


def _size(finish: pb.Finish) -> int:
    return len(finish.pooled.data) // _SCORED_BYTES


def _first(finishes: list[pb.Finish]) -> list[pb.Finish]:
    """Return as many as a frame has room for, at least one."""
    size = 0
    for count, finish in enumerate(finishes):
        size += _size(finish)
        if count and size > _MOST_SCORED and _size(finish):
            return finishes[:count]
    return finishes


def _beside(
    tokens: Mapping[int, list[int]], counts: list[int], sampled: Mapping[int, list[float]]
) -> Iterable[Sequence[float]]:
    """Return the scores of each slot that has tokens, as many as these: NaN for tokens that have none."""
    scores = sampled.values()
    if [*sampled] == [*tokens] and [*map(len, scores)] == counts:  # all have some: a comparison costs next to nothing
        return scores
    unknown = [math.nan]
    return [
        [*(known := sampled.get(slot, ())), *(unknown * (count - len(known)))][:count]
        for slot, count in zip(tokens, counts, strict=True)
    ]
