"""Replies of streams, read after the load."""

import asyncio

import pytest

from benchmarks.load import StreamResult
from gpu.streams import Conversations, Flood, events_of, reply_of, timings, words
from tests.benchmarks.test_load import CHUNKED, DONE, FULL, answering_with, delta, event

BODY = FULL.removeprefix(CHUNKED)


def result(body: bytes, status: int = 200, complete: bool = True) -> StreamResult:
    """Return a finished stream."""
    return StreamResult(10.0, status, [10.5, 11.0], completion_tokens=4, complete=complete, body=bytearray(body))


def test_events_are_read_from_chunks() -> None:
    """However many are in one, and without [DONE]."""
    assert [list(each) for each in events_of(BODY)] == [["choices"], ["choices"], ["choices", "usage"]]
    two = b"data: {}\n\ndata: {}\n\n"
    assert len(list(events_of(b"%x\r\n%b\r\n0\r\n\r\n" % (len(two), two)))) == 2


def test_a_reply_has_its_text_reason_and_usage() -> None:
    """As a client reads it."""
    reply = reply_of(result(BODY))

    assert (reply.text, reply.finish_reason, reply.error) == ("Hello you", "length", None)
    assert reply.usage["completion_tokens"] == 42


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (result(b"too many", status=429), "status 429: too many"),
        (result(delta("Hel"), complete=False), "the stream broke off"),
        (result(event({"error": {"message": "engine died"}}) + DONE), '{"message": "engine died"}'),
    ],
)
def test_a_failure_is_an_error(failed: StreamResult, error: str) -> None:
    """Of the status, of the connection, or within the stream."""
    assert reply_of(failed).error == error


def test_throughput_is_that_of_whole_streams() -> None:
    """From the first request to the last data."""
    figures = timings([result(BODY), result(b"", complete=False)])

    assert (figures["requests"], figures["completed"], figures["output_tokens_per_s"]) == (2, 1, 4.0)
    assert (figures["ttft_p50_ms"], figures["itl_p50_ms"]) == (500, 500)
    assert timings([]) == {"requests": 0, "completed": 0}


def test_words_of_other_seeds_begin_differently() -> None:
    """Else they would share blocks of the prefix cache; the same seed gives both servers the same prompts."""
    assert len({words(5, seed)[:4] for seed in range(1000, 1100)}) == 100
    assert words(5, 7) == words(5, 7)


async def test_a_conversation_sends_all_before_it_again() -> None:
    """One row a turn, each with the same number of conversations."""
    async with answering_with(FULL) as url:
        rows = await Conversations(count=2, turns=3, words=5, max_tokens=4).hold(url, "model")

    assert [(row["turn"], row["completed"], row["errors"]) for row in rows] == [(1, 2, []), (2, 2, []), (3, 2, [])]


async def test_a_conversation_ends_with_an_error() -> None:
    """Its later turns are not held, and the error is in the row of its turn."""
    async with answering_with(CHUNKED + delta("Hel"), close=True) as url:
        rows = await Conversations(count=1, turns=2, words=5, max_tokens=4).hold(url, "model")

    assert [row["requests"] for row in rows] == [1, 0]
    assert rows[0]["errors"] == ["the stream broke off"]


async def test_processes_share_the_requests() -> None:
    """Each is sent once, and the results come with their bodies."""
    async with answering_with(FULL) as url:
        with await asyncio.to_thread(Flood, 2) as flood:
            results = await asyncio.to_thread(flood.send, url, "/v1/chat/completions", [{}] * 5, 3)

    assert [reply_of(each).text for each in results] == ["Hello you"] * 5
