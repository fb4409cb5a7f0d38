"""A frame buffer turns steps into frames."""

import asyncio

from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.cache.prefix_cache import CacheChange
from tokenwire.worker.engine.frame_buffer import FrameBuffer

LOAD = pb.Load(running=1)


def one_column(*token_ids: int) -> pb.LogprobRows:
    """Return rows of one column each."""
    return pb.LogprobRows(width=1, token_ids=token_ids, logprobs=[-0.5] * len(token_ids), sampled_ranks=token_ids)


async def take_frame(buffer: FrameBuffer) -> pb.StepFrame:
    """Take output that must be exactly one frame."""
    (event,) = await buffer.take()
    assert event.WhichOneof("event") == "frame"
    return event.frame


async def test_counts_are_omitted_for_one_token_each() -> None:
    """Counts are omitted if every slot has exactly one token."""
    buffer = FrameBuffer()
    buffer.add_tokens(3, [30])
    buffer.add_tokens(1, [10])
    buffer.flush(LOAD, "v1")
    assert await take_frame(buffer) == pb.StepFrame(slots=[3, 1], token_ids=[30, 10], load=LOAD, weight_version="v1")


async def test_counts_are_sent_for_other_numbers_of_tokens() -> None:
    """Counts are sent as soon as one slot has none or several tokens."""
    buffer = FrameBuffer()
    buffer.add_tokens(1, [10, 11])
    buffer.add_tokens(2, [])
    buffer.add_tokens(3, [30])
    buffer.flush(LOAD, "")
    frame = await take_frame(buffer)
    assert (list(frame.slots), list(frame.counts), list(frame.token_ids)) == ([1, 2, 3], [2, 0, 1], [10, 11, 30])


async def test_unsent_steps_are_merged() -> None:
    """They are sent as one frame: each slot once, with all of its tokens, and the latest load."""
    buffer = FrameBuffer()
    for step in range(3):
        buffer.add_tokens(1, [10 + step])
        buffer.add_logprobs(1, one_column(10 + step))
        buffer.add_tokens(2 + step, [20])
        buffer.flush(pb.Load(running=step), f"v{step}")
    frame = await take_frame(buffer)
    assert (list(frame.slots), list(frame.counts)) == ([1, 2, 3, 4], [3, 1, 1, 1])
    assert list(frame.token_ids) == [10, 11, 12, 20, 20, 20]
    assert list(frame.logprobs) == [pb.Logprobs(slot=1, rows=one_column(10, 11, 12))]
    assert (frame.load.running, frame.weight_version) == (2, "v2")


async def test_a_new_weight_version_ends_a_frame() -> None:
    """Tokens of two weight versions never share a frame, however late they are taken; an empty frame is not sent."""
    buffer = FrameBuffer()
    buffer.end_frame()
    buffer.add_tokens(1, [10])
    buffer.flush(LOAD, "v1")
    buffer.end_frame()
    buffer.add_tokens(1, [11])
    buffer.flush(LOAD, "v2")

    frames = [event.frame for event in await buffer.take()]

    assert [(list(frame.token_ids), frame.weight_version) for frame in frames] == [([10], "v1"), ([11], "v2")]


async def test_a_frame_has_a_bounded_number_of_log_probabilities() -> None:
    """Those of prompts and of tokens; what is beyond is sent as the next frame, and nothing is lost."""
    buffer = FrameBuffer()
    rows = one_column(*range(300_000))
    for slot in range(4):
        buffer.add_tokens(slot, [slot])
        if slot % 2:
            buffer.add_prefill(slot, pb.PrefillInfo(prompt_logprobs=rows))
        else:
            buffer.add_logprobs(slot, rows)
        buffer.flush(LOAD, "v1")

    frames = [event.frame for event in await buffer.take()]

    assert [list(frame.slots) for frame in frames] == [[0, 1], [2, 3]]
    assert all(len(frame.prefills) == len(frame.logprobs) == 1 for frame in frames)


async def test_output_is_sent_exactly_once() -> None:
    """Output that was taken is not in a later frame."""
    buffer = FrameBuffer()
    buffer.add_tokens(1, [10])
    buffer.add_prefill(1, pb.PrefillInfo(cached_tokens=16))
    buffer.add_logprobs(1, one_column(10))
    buffer.add_finish(1, pb.Finish(reason=pb.FINISH_REASON_LENGTH))
    buffer.flush(LOAD, "")
    first = await take_frame(buffer)
    buffer.add_tokens(2, [20])
    buffer.flush(LOAD, "")
    assert list(first.prefills) == [pb.PrefillInfo(slot=1, cached_tokens=16)]
    assert list(first.finishes) == [pb.Finish(slot=1, reason=pb.FINISH_REASON_LENGTH)]
    assert await take_frame(buffer) == pb.StepFrame(slots=[2], token_ids=[20], load=LOAD)


async def test_a_finish_is_sent_without_tokens() -> None:
    """A terminal event needs no tokens, and `on_finish` is called with its slot."""
    finished: list[int] = []
    buffer = FrameBuffer(finished.append)
    buffer.add_finish(7, pb.Finish(reason=pb.FINISH_REASON_ABORT))
    buffer.flush(LOAD, "")
    frame = await take_frame(buffer)
    assert list(frame.finishes) == [pb.Finish(slot=7, reason=pb.FINISH_REASON_ABORT)]
    assert finished == [7]


async def test_taking_waits_for_the_end_of_a_step() -> None:
    """A step without output does not wake the sender."""
    buffer = FrameBuffer()
    taking = asyncio.ensure_future(take_frame(buffer))
    buffer.flush(LOAD, "")
    await asyncio.sleep(0)
    buffer.add_tokens(1, [10])
    await asyncio.sleep(0)
    assert not taking.done()
    buffer.flush(LOAD, "")
    assert list((await taking).token_ids) == [10]


async def test_other_events_precede_the_frame() -> None:
    """Other events are sent in order, before the frame."""
    buffer = FrameBuffer()
    buffer.add_tokens(1, [10])
    buffer.flush(LOAD, "")
    refusal = pb.SessionResponse(refusal=pb.Refusal(slots=[2]))
    draining = pb.SessionResponse(draining=pb.Draining(deadline_ms=5))
    buffer.add_event(refusal)
    buffer.add_event(draining)
    events = await buffer.take()
    assert events[:2] == [refusal, draining]
    assert events[2].frame.slots == [1]


async def test_unsent_changes_of_the_cache_are_merged() -> None:
    """They are sent once, before the frame; a change after that is another one."""
    buffer = FrameBuffer()
    for prefix in (1, 2):
        buffer.add_kv_events(CacheChange(stored=[prefix]))
    buffer.add_tokens(1, [10])
    buffer.flush(LOAD, "")
    first, second = await buffer.take()
    buffer.add_kv_events(CacheChange(stored=[3]))
    (third,) = await buffer.take()

    assert [sorted(event.cache.stored) for event in (first, third)] == [[1, 2], [3]]
    assert second.WhichOneof("event") == "frame"


async def test_a_frame_replaces_the_next_heartbeat() -> None:
    """The first heartbeat after a frame is skipped; the one after that is sent."""
    buffer = FrameBuffer()
    buffer.add_tokens(1, [10])
    buffer.flush(LOAD, "")
    await take_frame(buffer)

    buffer.add_heartbeat(pb.Heartbeat(steps=1))
    buffer.add_heartbeat(pb.Heartbeat(steps=2))

    (event,) = await buffer.take()
    assert event.heartbeat.steps == 2


async def test_results_are_cut_into_frames() -> None:
    """Some megabytes each, because coordinators take no larger events; each has at least one."""
    buffer = FrameBuffer()
    for slot in range(5):
        result = pb.Pooled(shape=[500_000], data=bytes(2_000_000))
        buffer.add_finish(slot, pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=result))
    buffer.add_finish(9, pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=pb.Pooled(shape=[1], data=bytes(9_000_000))))
    buffer.add_finish(8, pb.Finish(reason=pb.FINISH_REASON_ABORT))

    buffer.flush(LOAD, "v1")

    frames = [event.frame for event in await buffer.take()]
    assert [[finish.slot for finish in frame.finishes] for frame in frames] == [[0, 1], [2, 3], [4], [9, 8]]
    assert {frame.weight_version for frame in frames} == {"v1"}
    buffer.add_finish(1, pb.Finish(reason=pb.FINISH_REASON_STOP, pooled=pb.Pooled(shape=[1], data=bytes(4))))
    buffer.flush(LOAD, "v1")
    assert len(await buffer.take()) == 1


async def test_log_probabilities_stand_beside_their_tokens() -> None:
    """Of merged steps too; those that did not ask for them, or got none, have no number."""
    buffer = FrameBuffer()
    for slot, token_ids, logprobs in ((1, [10], [-1.0]), (2, [20], []), (1, [11], [-2.0]), (3, [30, 31], [-3.0])):
        buffer.add_tokens(slot, token_ids)
        if logprobs:
            buffer.add_sampled(slot, logprobs)
    buffer.flush(LOAD, "")
    frame = await take_frame(buffer)
    buffer.add_tokens(1, [12])
    buffer.flush(LOAD, "")

    assert [*frame.token_ids] == [10, 11, 20, 30, 31]
    assert repr([*frame.sampled_logprobs]) == "[-1.0, -2.0, nan, -3.0, nan]"
    assert not (await take_frame(buffer)).sampled_logprobs
