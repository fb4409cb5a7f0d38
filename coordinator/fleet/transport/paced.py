"""Merges frames that arrive while the event loop is busy with earlier ones, so that it keeps time for the rest.

Without this, once the tokens of a step take longer than a step, frames queue up in gRPC, and the events of a new
request wait behind them for seconds. Merged, a stream's tokens of several steps are decoded, rendered and written
together, which costs a fraction of what they cost one by one.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

from tokenwire.coordinator.fleet.frames import check_arrays
from tokenwire.coordinator.fleet.transport.base import WorkerTransport
from tokenwire.errors import ProtocolError
from tokenwire.v1 import control_pb2_grpc, inference_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

_LONGEST_S = 0.05
"""Frames never wait for longer."""

_MOST_MERGED = 2**16
"""Slots, tokens and ends of a frame that is merged: what has more was merged already, or is not to be believed."""

_EVENTS_PER_S, _BYTES_PER_EVENT = 300, 64 * 1024
"""How many events other than frames a session may have, of which each counts as one for so many bytes."""
_MOST_EVENTS_AT_ONCE = 2000
_SHORTEST_S = 0.1
"""Of a wait beyond that: several events after a longer one cost less than each after its own."""

Event = pb.SessionResponse
PerToken = TypeVar("PerToken")


class FramePace:
    """Lets frames wait for as long as the last ones took, so that they take half of the event loop at most.

    One for all sessions of a process.
    """

    def __init__(self, longest_s: float = _LONGEST_S) -> None:
        self.merged = 0
        """Frames that were dispatched together with the one before."""
        self._longest_s = longest_s
        self._began_at = 0.0
        self._free_at = 0.0

    def wait_s(self) -> float:
        """Return how long frames are to wait from now on; zero or less: not at all."""
        return self._free_at - asyncio.get_running_loop().time()

    def begin(self) -> None:
        """Begin to time a turn of the event loop in which frames are dispatched."""
        if not self._began_at:
            loop = asyncio.get_running_loop()
            self._began_at = loop.time()
            # Twice, to come behind the writes, which the dispatch puts off to the end of the turn.
            loop.call_soon(loop.call_soon, self._end)

    def _end(self) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = now + min(now - self._began_at, self._longest_s)
        self._began_at = 0.0


class EventPace:
    """Lets heartbeats and other events that are no frames wait where a worker sends very many, or very large ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = 0.0
        """Events that came of late."""
        self._at = self._clock()

    def wait_s(self, size: int) -> float:
        """Count an event of so many bytes; return how long it is to wait."""
        now = self._clock()
        self._due = max(0.0, self._due - (now - self._at) * _EVENTS_PER_S) + 1 + size / _BYTES_PER_EVENT
        self._at = now
        over = (self._due - _MOST_EVENTS_AT_ONCE) / _EVENTS_PER_S
        return over + _SHORTEST_S if over > 0 else 0.0


class PacedTransport:
    """A transport that keeps frames back, at the pace, and returns those that came meanwhile as one."""

    def __init__(self, transport: WorkerTransport, pace: FramePace) -> None:
        self._transport = transport
        self._pace = pace
        self._events = EventPace()
        self._reading: asyncio.Task[Event | None] | None = None
        """What is read ahead."""

    @property
    def sends_steps(self) -> bool:
        """Whether frames are steps of an engine."""
        return self._transport.sends_steps

    @property
    def control(self) -> control_pb2_grpc.ControlStub:
        """The stub for the worker's control calls."""
        return self._transport.control

    @property
    def media(self) -> inference_pb2_grpc.MediaStub | None:
        """The stub for putting media."""
        return self._transport.media

    async def read(self) -> Event | None:
        """Return the worker's next event, or several frames as one; None when the worker closed the connection."""
        event = await (self._transport.read() if self._reading is None else self._take())
        if event is None:
            return None
        if event.WhichOneof("event") != "frame":
            if (wait_s := self._events.wait_s(event.ByteSize())) > 0:
                await asyncio.sleep(wait_s)
            return event
        if self._pace.wait_s() > 0:
            event = Event(frame=await self._gather(event.frame))
        self._pace.begin()
        return event

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """Return the files of the worker's tokenizer by name."""
        return await self._transport.fetch_tokenizer()

    async def close(self) -> None:
        """Close the connection, at once: what was sent there may be sent elsewhere in this turn of the event loop."""
        await self._transport.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _take(self) -> Event | None:
        assert self._reading is not None
        event = await asyncio.shield(self._reading)
        self._reading = None
        return event

    async def _gather(self, frame: pb.StepFrame) -> pb.StepFrame:
        """Return a frame with those that come until it may be dispatched."""
        gathered = _MergedFrame(frame)
        while (wait_s := self._pace.wait_s()) > 0:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._transport.read())
            await asyncio.wait([self._reading], timeout=wait_s)
            # Any other event, an error and the end of the stream are for the next read.
            if not self._reading.done() or self._reading.cancelled() or self._reading.exception() is not None:
                break
            event = self._reading.result()
            if event is None or event.WhichOneof("event") != "frame" or not gathered.takes(event.frame):
                break
            gathered.add(event.frame)
            self._pace.merged += 1
            self._reading = None
        return gathered.frame()


def _may_merge(frame: pb.StepFrame) -> bool:
    """Return whether a frame can be merged with others: a large one, or one against the protocol, stays by itself."""
    if len(frame.slots) + len(frame.token_ids) + len(frame.finishes) > _MOST_MERGED:
        return False
    try:
        check_arrays(frame)
    except ProtocolError:
        return False
    return True


class _MergedFrame:
    """Frames of one session as one, as the worker itself merges steps that it could not send yet."""

    def __init__(self, first: pb.StepFrame) -> None:
        self._frames = [first]
        self._ended = {finish.slot for finish in first.finishes}

    def takes(self, frame: pb.StepFrame) -> bool:
        """Return whether a frame may be added: one of other weights, or with slots that have ended, may not."""
        return (
            (len(self._frames) > 1 or _may_merge(self._frames[0]))
            and _may_merge(frame)
            and frame.weight_version == self._frames[0].weight_version
            and self._ended.isdisjoint(frame.slots)
            and self._ended.isdisjoint(finish.slot for finish in frame.finishes)
        )

    def add(self, frame: pb.StepFrame) -> None:
        """Add the next frame."""
        self._frames.append(frame)
        self._ended.update(finish.slot for finish in frame.finishes)

    def frame(self) -> pb.StepFrame:
        """Return all as one frame."""
        frames = self._frames
        if len(frames) == 1:
            return frames[0]
        tokens = _by_slot((frame, frame.token_ids[:]) for frame in frames)
        scores: dict[int, pb.Logprobs] = {}
        for each in (row for frame in frames for row in frame.logprobs):
            known = scores.setdefault(each.slot, each)
            if known is not each:
                known.rows.MergeFrom(each.rows)
        merged = pb.StepFrame(
            slots=tokens.keys(),
            counts=[len(token_ids) for token_ids in tokens.values()],
            token_ids=[token_id for token_ids in tokens.values() for token_id in token_ids],
            finishes=[finish for frame in frames for finish in frame.finishes],
            prefills=[info for frame in frames for info in frame.prefills],
            logprobs=scores.values(),
            load=frames[-1].load,
            weight_version=frames[0].weight_version,
        )
        if any(frame.sampled_logprobs for frame in frames):
            sampled = _by_slot((frame, frame.sampled_logprobs[:] or _unknown(frame)) for frame in frames)
            merged.sampled_logprobs.extend(chain.from_iterable(sampled.values()))
        return merged


def _by_slot(frames: Iterable[tuple[pb.StepFrame, list[PerToken]]]) -> dict[int, list[PerToken]]:
    """Return what frames have for each of their tokens, by slot."""
    found: dict[int, list[PerToken]] = {}
    for frame, values in frames:
        start = 0
        for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=True):
            found.setdefault(slot, []).extend(values[start : start + count])
            start += count
    return found


def _unknown(frame: pb.StepFrame) -> list[float]:
    return [math.nan] * len(frame.token_ids)
