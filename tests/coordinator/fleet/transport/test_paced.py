"""Frames that come while earlier ones are dispatched: merged, in order, and never kept for long.

One file, since all tests are of one transport over scripted frames.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence

import pytest

from tests.workers import Listener
from tokenwire.coordinator.fleet.frames import dispatch
from tokenwire.coordinator.fleet.slots import SlotTable
from tokenwire.coordinator.fleet.transport.paced import EventPace, FramePace, PacedTransport
from tokenwire.errors import Unavailable
from tokenwire.v1 import control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb

LENGTH = pb.FINISH_REASON_LENGTH


class ScriptedTransport:
    """A transport with these events, after which it fails, or nothing comes."""

    sends_steps = True

    def __init__(self, events: Sequence[pb.SessionResponse], error: Unavailable | None = None) -> None:
        self.events = list(events)
        self._error = error
        self.cancelled = self.closed = False
        self.come = asyncio.Event()
        """Set when there are more events."""

    @property
    def media(self) -> None:
        """No test puts any."""

    @property
    def control(self) -> control_pb2_grpc.ControlStub:
        """No test calls it."""
        raise NotImplementedError

    async def read(self) -> pb.SessionResponse | None:
        """Return the next event."""
        if self.events:
            return self.events.pop(0)
        if self._error is not None:
            raise self._error
        try:
            await self.come.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.events.pop(0)

    async def fetch_tokenizer(self) -> dict[str, bytes]:
        """There is none."""
        return {}

    async def close(self) -> None:
        """Record it."""
        self.closed = True


class BehindPace(FramePace):
    """The pace of a coordinator that is behind until it is not."""

    def __init__(self, waits: int = 1_000_000) -> None:
        super().__init__()
        self._waits = waits

    def wait_s(self) -> float:
        """Let frames wait this number of times."""
        self._waits -= 1
        return 0.01 if self._waits >= 0 else 0.0


def tokens(**slots: int | list[int]) -> pb.StepFrame:
    """Return a frame: tokens by slot, as in s1=[7, 8]."""
    lists = {int(name[1:]): ids if isinstance(ids, list) else [ids] for name, ids in slots.items()}
    counts = [len(ids) for ids in lists.values()]
    return pb.StepFrame(
        slots=lists.keys(),
        counts=[] if set(counts) <= {1} else counts,
        token_ids=[token_id for ids in lists.values() for token_id in ids],
    )


def event_of_frame(frame: pb.StepFrame) -> pb.SessionResponse:
    """Return the event of a frame."""
    return pb.SessionResponse(frame=frame)


async def read_frame(transport: PacedTransport) -> pb.StepFrame:
    """Read an event that is a frame."""
    read = await asyncio.wait_for(transport.read(), 5)
    assert read is not None
    assert read.WhichOneof("event") == "frame"
    return read.frame


async def read_all(transport: PacedTransport) -> list[pb.StepFrame]:
    """Read frames until the connection is lost."""
    frames: list[pb.StepFrame] = []
    with contextlib.suppress(Unavailable):
        while True:
            frames.append(await read_frame(transport))
    return frames


def by_slot(frame: pb.StepFrame) -> dict[int, list[int]]:
    """Return the tokens of a frame by slot."""
    start, result = 0, dict[int, list[int]]()
    for slot, count in zip(frame.slots, frame.counts or [1] * len(frame.slots), strict=True):
        result[slot] = list(frame.token_ids[start : start + count])
        start += count
    return result


async def test_frames_stay_by_themselves_while_the_coordinator_keeps_up() -> None:
    """Each step is a chunk."""
    transport = PacedTransport(
        ScriptedTransport([event_of_frame(tokens(s0=1)), event_of_frame(tokens(s0=2))]), FramePace()
    )

    assert [by_slot(await read_frame(transport)) for _ in range(2)] == [{0: [1]}, {0: [2]}]


async def test_frames_are_merged_while_it_is_behind() -> None:
    """Each slot has its tokens in order, with all that came with them, and the newest load."""
    first, second, third = tokens(s0=1, s1=2), tokens(s1=[3, 4]), tokens(s0=5, s2=6)
    first.prefills.add(slot=1)
    second.finishes.add(slot=1, reason=LENGTH)
    second.logprobs.add(slot=1, rows=pb.LogprobRows(token_ids=[3, 4]))
    third.load.running = 2
    for each in (first, second, third):
        each.weight_version = "v1"
    pace = BehindPace()

    merged = await read_frame(
        PacedTransport(ScriptedTransport([event_of_frame(each) for each in (first, second, third)]), pace)
    )

    assert by_slot(merged) == {0: [1, 5], 1: [2, 3, 4], 2: [6]}
    assert (merged.prefills[0].slot, merged.finishes[0].slot, merged.logprobs[0].slot) == (1, 1, 1)
    assert (merged.load.running, merged.weight_version, pace.merged) == (2, "v1", 2)


async def test_log_probabilities_of_a_slot_are_merged_into_one() -> None:
    """As those of a worker that merges steps: what stands before the listeners expects one for each slot."""
    frames = [tokens(s0=1), tokens(s0=2, s1=9), tokens(s0=3)]
    for frame in frames:
        rows = pb.LogprobRows(width=1, token_ids=[frame.token_ids[0]], logprobs=[-1.0], sampled_ranks=[1])
        frame.logprobs.add(slot=0, rows=rows)
    frames[1].logprobs.add(slot=1, rows=pb.LogprobRows(width=1, token_ids=[9]))

    merged = await read_frame(
        PacedTransport(ScriptedTransport([event_of_frame(each) for each in frames]), BehindPace())
    )

    assert [(each.slot, list(each.rows.token_ids)) for each in merged.logprobs] == [(0, [1, 2, 3]), (1, [9])]
    assert (len(merged.logprobs[0].rows.logprobs), len(merged.logprobs[0].rows.sampled_ranks)) == (3, 3)


async def test_frames_wait_only_as_long_as_the_coordinator_is_behind() -> None:
    """What comes later is another frame."""
    pace = BehindPace(waits=2)  # for the first frame, and before the second one is added
    transport = PacedTransport(ScriptedTransport([event_of_frame(tokens(s0=each)) for each in (1, 2, 3)]), pace)

    assert [by_slot(await read_frame(transport)) for _ in range(2)] == [{0: [1, 2]}, {0: [3]}]


def renamed(frame: pb.StepFrame, version: str) -> pb.StepFrame:
    """Return the frame with other weights."""
    frame.weight_version = version
    return frame


def ending(frame: pb.StepFrame, slot: int) -> pb.StepFrame:
    """Return the frame with the end of a slot."""
    frame.finishes.add(slot=slot, reason=LENGTH)
    return frame


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (tokens(s0=1), renamed(tokens(s0=2), "v2")),
        (ending(tokens(s0=1), 0), tokens(s0=2)),
        (ending(tokens(s0=1), 0), ending(tokens(s1=2), 0)),
        (tokens(s0=1), pb.StepFrame(slots=[0], token_ids=[1, 2])),
        (tokens(s0=1), pb.StepFrame(slots=[0, 0], token_ids=[1, 2])),
        (pb.StepFrame(slots=[0, 1], token_ids=[1]), tokens(s0=2)),
    ],
    ids=["other weights", "an ended slot", "a second end", "wrong arrays", "a slot twice", "a wrong first one"],
)
async def test_frames_that_cannot_be_one_stay_by_themselves(first: pb.StepFrame, second: pb.StepFrame) -> None:
    """Their differences, or what is wrong with them, are for the dispatch to see."""
    transport = PacedTransport(ScriptedTransport([event_of_frame(first), event_of_frame(second)]), BehindPace())

    assert [await read_frame(transport) for _ in range(2)] == [first, second]


async def test_other_events_keep_their_place_among_frames() -> None:
    """A refusal or a welcome never overtakes tokens, nor the other way round."""
    refusal = pb.SessionResponse(refusal=pb.Refusal(slots=[3]))
    transport = PacedTransport(
        ScriptedTransport([event_of_frame(tokens(s0=1)), refusal, event_of_frame(tokens(s0=2))]), BehindPace()
    )

    assert by_slot(await read_frame(transport)) == {0: [1]}
    assert await transport.read() == refusal
    assert by_slot(await read_frame(transport)) == {0: [2]}


async def test_the_tokens_before_a_lost_connection_are_delivered() -> None:
    """Then comes the error."""
    transport = PacedTransport(
        ScriptedTransport([event_of_frame(tokens(s0=1)), event_of_frame(tokens(s0=2))], Unavailable("connection lost")),
        BehindPace(),
    )

    assert by_slot(await read_frame(transport)) == {0: [1, 2]}
    with pytest.raises(Unavailable, match="connection lost"):
        await transport.read()


async def test_a_closed_transport_reads_nothing_more() -> None:
    """What it reads ahead is cancelled, after the connection was closed, which is at once."""
    scripted = ScriptedTransport([event_of_frame(tokens(s0=1))])
    transport = PacedTransport(scripted, BehindPace())
    await read_frame(transport)

    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    assert scripted.closed
    await closing

    assert scripted.cancelled


async def test_a_cancelled_read_loses_no_event() -> None:
    """The next one returns what was read ahead."""
    scripted = ScriptedTransport([event_of_frame(tokens(s0=1))])
    transport = PacedTransport(scripted, BehindPace(waits=2))
    await read_frame(transport)
    reading = asyncio.create_task(transport.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    scripted.events.append(event_of_frame(tokens(s0=2)))
    scripted.come.set()

    assert by_slot(await read_frame(transport)) == {0: [2]}


async def test_frames_wait_as_long_as_the_last_ones_took_with_their_writes() -> None:
    """But not longer than the limit."""
    pace = FramePace(longest_s=0.01)
    assert pace.wait_s() <= 0

    pace.begin()
    asyncio.get_running_loop().call_soon(time.sleep, 0.02)  # the writes, at the end of the turn
    for _ in range(3):
        await asyncio.sleep(0)

    assert 0 < pace.wait_s() <= 0.01


async def test_any_frames_give_the_same_tokens_merged() -> None:
    """Drawn frames of sequences of all lengths: each listener gets the same tokens and the same end."""
    for seed in range(50):
        rng = random.Random(seed)
        left = {slot: rng.randrange(1, 8) for slot in range(4)}
        frames = []
        while left:
            drawn = {slot: rng.randrange(1, min(left[slot], 3) + 1) for slot in left if rng.random() < 0.7}
            frame = tokens(**{f"s{slot}": [rng.randrange(99) for _ in range(count)] for slot, count in drawn.items()})
            for slot, count in drawn.items():
                left[slot] -= count
                if not left[slot]:
                    del left[slot]
                    ending(frame, slot)
            frames.append(frame)
        read = PacedTransport(
            ScriptedTransport([event_of_frame(each) for each in frames], Unavailable("end")),
            BehindPace(rng.randrange(9)),
        )

        assert _heard(await read_all(read)) == _heard(frames), seed


def _heard(frames: Sequence[pb.StepFrame]) -> list[tuple[list[int], pb.Finish | None]]:
    slots, listeners = SlotTable(), [Listener() for _ in range(4)]
    for listener in listeners:
        slots.take(listener)
    for frame in frames:
        dispatch(frame, slots)
    return [(listener.token_ids, listener.finish) for listener in listeners]


async def test_log_probabilities_beside_tokens_are_merged_with_them() -> None:
    """Where one frame has none, its tokens have no number."""
    first = pb.StepFrame(slots=[1, 2], token_ids=[10, 20], sampled_logprobs=[-1.0, -2.0])
    second = pb.StepFrame(slots=[2], token_ids=[21])
    third = pb.StepFrame(slots=[1], counts=[2], token_ids=[11, 12], sampled_logprobs=[-3.0, -4.0])
    events = [event_of_frame(each) for each in (first, second, third)]
    read = PacedTransport(ScriptedTransport(events, Unavailable("end")), BehindPace(9))

    (frame,) = await read_all(read)

    assert [*frame.token_ids] == [10, 11, 12, 20, 21]
    assert repr([*frame.sampled_logprobs]) == "[-1.0, -3.0, -4.0, -2.0, nan]"


def test_a_flood_of_events_that_are_no_frames_waits() -> None:
    """A burst does not, nor what honest workers send all the time; a large event counts as many."""
    now = 0.0
    pace = EventPace(lambda: now)
    assert not any(pace.wait_s(100) for _ in range(1000))
    for _ in range(10_000):
        now += 0.01
        assert not pace.wait_s(10_000)
    flood = 0.0
    for _ in range(10_000):
        waited = pace.wait_s(10)
        now, flood = now + waited, flood + waited
    assert flood > 10
    large = sum(pace.wait_s(16 * 2**20) for _ in range(10))
    assert large > 5


async def test_events_are_let_wait_and_frames_are_not() -> None:
    """Each by its own pace."""
    heartbeat, frame = pb.SessionResponse(heartbeat=pb.Heartbeat()), event_of_frame(tokens(s0=1))
    paced = PacedTransport(ScriptedTransport([heartbeat, frame, heartbeat]), FramePace())
    counted: list[int] = []
    paced._events.wait_s = lambda size: float(counted.append(size) or 0)  # type: ignore[method-assign,func-returns-value]
    assert [await paced.read() for _ in range(3)] == [heartbeat, frame, heartbeat]
    assert counted == [heartbeat.ByteSize()] * 2
