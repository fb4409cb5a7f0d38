"""Output of a plain vLLM server is merged into frames."""

import asyncio

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.token_buffer import TokenBuffer
from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb

ROWS = pb.LogprobRows(width=1, token_ids=[5])


async def test_what_arrived_in_between_is_one_frame() -> None:
    """Tokens of a slot stay in order, with its prefill info and its finish."""
    buffer = TokenBuffer()
    buffer.prefilled(pb.PrefillInfo(slot=1, cached_tokens=8))
    buffer.add(1, [5], [ROWS])
    buffer.add(2, [7], [])
    buffer.add(1, [6], [])
    buffer.finish(pb.Finish(slot=1, reason=pb.FINISH_REASON_LENGTH))
    frame = (await buffer.take()).frame

    assert (list(frame.slots), list(frame.counts), list(frame.token_ids)) == ([1, 2], [2, 1], [5, 6, 7])
    assert [info.slot for info in frame.prefills] == [1]
    assert list(frame.logprobs) == [pb.Logprobs(slot=1, rows=ROWS)]
    assert [finish.slot for finish in frame.finishes] == [1]


async def test_rows_of_one_width_are_one_message() -> None:
    """In the order of their tokens: thousands of messages would take long to cut."""
    buffer = TokenBuffer()
    for token_id, width in ((5, 1), (6, 1), (7, 2), (8, 1)):
        rows = pb.LogprobRows(width=width, token_ids=[token_id] * width, sampled_ranks=[token_id])
        buffer.add(1, [token_id], [rows])
    frame = (await buffer.take()).frame

    found = [(each.rows.width, [*each.rows.token_ids], [*each.rows.sampled_ranks]) for each in frame.logprobs]
    assert found == [(1, [5, 6], [5, 6]), (2, [7, 7], [7]), (1, [8], [8])]


async def test_a_refusal_comes_after_the_tokens() -> None:
    """With the error's code, message and parameter; where no slot is open any more, there is none."""
    buffer = TokenBuffer()
    buffer.fail([], InvalidRequest("too late"))
    buffer.fail([1], InvalidRequest("too long", param="prompt"))
    buffer.add(1, [5], [])

    assert (await buffer.take()).frame.token_ids == [5]
    refusal = (await buffer.take()).refusal
    assert (list(refusal.slots), refusal.message, refusal.param) == ([1], "too long", "prompt")


async def test_an_idle_reader_waits_for_the_next_output() -> None:
    """Nothing is sent twice, and a closed buffer ends with its reason after the rest."""
    buffer = TokenBuffer()
    buffer.add(1, [5], [])
    await buffer.take()
    reading = asyncio.ensure_future(buffer.take())
    await asyncio.sleep(0)
    assert not reading.done()
    buffer.add(1, [6], [])
    assert (await reading).frame.token_ids == [6]

    buffer.add(1, [7], [])
    buffer.close("the server is gone")
    assert (await buffer.take()).frame.token_ids == [7]
    with pytest.raises(Unavailable, match="the server is gone"):
        await buffer.take()
