"""An outbox turns steps into frames."""

import asyncio

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.frame_buffer import Outbox

LOAD = pb.Load(running=1)


def rows(*token_ids: int) -> pb.LogprobRows:
    """Rows of one column each."""
    return pb.LogprobRows(width=1, token_ids=token_ids, logprobs=[-0.5] * len(token_ids), sampled_ranks=token_ids)


async def take_frame(outbox: Outbox) -> pb.StepFrame:
    """Take what must be one frame and nothing else."""
    (event,) = await outbox.take()
    assert event.WhichOneof("event") == "frame"
    return event.frame


async def test_one_token_each() -> None:
    """Counts are left out when every slot has exactly one token."""
    outbox = Outbox()
    outbox.add_tokens(3, [30])
    outbox.add_tokens(1, [10])
    outbox.flush(LOAD, "v1")
    assert await take_frame(outbox) == pb.StepFrame(slots=[3, 1], token_ids=[30, 10], load=LOAD, weight_version="v1")


async def test_several_tokens() -> None:
    """Counts are there as soon as one slot has another number of tokens, also none."""
    outbox = Outbox()
    outbox.add_tokens(1, [10, 11])
    outbox.add_tokens(2, [])
    outbox.add_tokens(3, [30])
    outbox.flush(LOAD, "")
    frame = await take_frame(outbox)
    assert (list(frame.slots), list(frame.counts), list(frame.token_ids)) == ([1, 2, 3], [2, 0, 1], [10, 11, 30])


async def test_conflation() -> None:
    """Steps that nobody took go out as one frame: a slot once, with all of its tokens, and the latest load."""
    outbox = Outbox()
    for step in range(3):
        outbox.add_tokens(1, [10 + step])
        outbox.add_logprobs(1, rows(10 + step))
        outbox.add_tokens(2 + step, [20])
        outbox.flush(pb.Load(running=step), f"v{step}")
    frame = await take_frame(outbox)
    assert (list(frame.slots), list(frame.counts)) == ([1, 2, 3, 4], [3, 1, 1, 1])
    assert list(frame.token_ids) == [10, 11, 12, 20, 20, 20]
    assert list(frame.logprobs) == [pb.Logprobs(slot=1, rows=rows(10, 11, 12))]
    assert (frame.load.running, frame.weight_version) == (2, "v2")


async def test_weights_cut_a_frame() -> None:
    """Tokens of two weight versions never share a frame, however late they are taken; nothing to cut adds nothing."""
    outbox = Outbox()
    outbox.cut()
    outbox.add_tokens(1, [10])
    outbox.flush(LOAD, "v1")
    outbox.cut()
    outbox.add_tokens(1, [11])
    outbox.flush(LOAD, "v2")

    frames = [event.frame for event in await outbox.take()]

    assert [(list(frame.token_ids), frame.weight_version) for frame in frames] == [([10], "v1"), ([11], "v2")]


async def test_exactly_once() -> None:
    """What was taken is not in a later frame."""
    outbox = Outbox()
    outbox.add_tokens(1, [10])
    outbox.add_prefill(1, pb.PrefillInfo(cached_tokens=16))
    outbox.add_logprobs(1, rows(10))
    outbox.add_finish(1, pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    outbox.flush(LOAD, "")
    first = await take_frame(outbox)
    outbox.add_tokens(2, [20])
    outbox.flush(LOAD, "")
    assert list(first.prefills) == [pb.PrefillInfo(slot=1, cached_tokens=16)]
    assert list(first.finishes) == [pb.Finish(slot=1, reason=pb.FINISH_REASON_LENGTH)]
    assert await take_frame(outbox) == pb.StepFrame(slots=[2], token_ids=[20], load=LOAD)


async def test_finish_alone() -> None:
    """A terminal event goes out without tokens, and its listener hears of the slot."""
    finished: list[int] = []
    outbox = Outbox(finished.append)
    outbox.add_finish(7, pb.Finish(reason=pb.FINISH_REASON_ABORT))
    outbox.flush(LOAD, "")
    frame = await take_frame(outbox)
    assert list(frame.finishes) == [pb.Finish(slot=7, reason=pb.FINISH_REASON_ABORT)]
    assert finished == [7]


async def test_waiting() -> None:
    """Taking waits for the end of a step that has something; a step without output wakes nobody."""
    outbox = Outbox()
    taking = asyncio.ensure_future(take_frame(outbox))
    outbox.flush(LOAD, "")
    await asyncio.sleep(0)
    outbox.add_tokens(1, [10])
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.flush(LOAD, "")
    assert list((await taking).token_ids) == [10]


async def test_other_events_first() -> None:
    """Other events go out in their order, before the frame."""
    outbox = Outbox()
    outbox.add_tokens(1, [10])
    outbox.flush(LOAD, "")
    refusal = pb.SessionResponse(refusal=pb.Refusal(slots=[2]))
    draining = pb.SessionResponse(draining=pb.Draining(deadline_ms=5))
    outbox.add_event(refusal)
    outbox.add_event(draining)
    events = await outbox.take()
    assert events[:2] == [refusal, draining]
    assert events[2].frame.slots == [1]


async def test_a_frame_is_a_sign_of_life() -> None:
    """The heartbeat that follows it says nothing new and is left out; the one after that is sent."""
    outbox = Outbox()
    outbox.add_tokens(1, [10])
    outbox.flush(LOAD, "")
    await take_frame(outbox)

    outbox.beat(pb.Heartbeat(steps=1))
    outbox.beat(pb.Heartbeat(steps=2))

    (event,) = await outbox.take()
    assert event.heartbeat.steps == 2
