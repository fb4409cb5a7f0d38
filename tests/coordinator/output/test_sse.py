"""Streamed replies: order, merging for slow readers, and ends.

One file, since all tests are of one class with the same fake encoder and reader.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clock import Clock
from tokenwire.coordinator.output.sse import ChunkOutput, StreamedReply
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, WorkerLost


class FakeEncoder:
    """An encoder with readable output."""

    shows_empty_deltas = False
    takes_single_steps = False
    ending = b"end"

    def opening(self) -> Iterator[bytes]:
        """Render an opening."""
        yield b"<"

    def __init__(self) -> None:
        self.logprobs: list[ScoredPosition] = []

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Do nothing."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render everything."""
        self.logprobs += logprobs or []
        ids = ",".join(map(str, token_ids))
        return f"[{index} {text} {ids}{' ' + finish.reason if finish else ''}]".encode()

    def closing(self, usage: Usage) -> bytes:
        """Show usage."""
        return f"{usage.prompt_tokens}+{usage.completion_tokens}>".encode()

    def error(self, error: TokenwireError) -> bytes:
        """Render the message."""
        return f"!{error.message}".encode()


class SlowParsedEncoder(FakeEncoder):
    """Parses each step in a millisecond, without anything to send."""

    takes_single_steps = True

    def __init__(self, clock: Clock, parsed: list[int]) -> None:
        super().__init__()
        self._clock = clock
        self._parsed = parsed

    def delta(self, *args: Any) -> bytes:
        """Record the step's ids."""
        self._clock.now += 0.001
        self._parsed.extend(args[2])
        return b""


class RecordedSink:
    """A sink whose reader can fall behind."""

    def __init__(self) -> None:
        self.congested = False
        self.data = b""
        self.held_bytes = 0

    def write(self, data: bytes) -> None:
        """Append the data."""
        self.data += data

    def hold(self, size_bytes: int) -> None:
        """Record the size."""
        self.held_bytes = size_bytes


STOP = Finish("stop")


async def test_steps_are_written_immediately() -> None:
    """Opening, one event per step, closing with usage, the ending."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 3), RecordedSink()
    reply.attach(reader)

    reply.delta(0, "a", [1], None)
    reply.delta(0, "b", [2], STOP)
    await reply.wait()

    assert reader.data == b"<[0 a 1][0 b 2 stop]3+2>" + b"end"


async def test_steps_before_the_response_are_merged() -> None:
    """Steps before a sink is attached are one event per choice."""
    reply, reader = StreamedReply(FakeEncoder(), 2, 0), RecordedSink()
    reply.delta(0, "a", [1], None)
    reply.delta(1, "x", [7], None)
    reply.delta(0, "b", [2], None)

    reply.attach(reader)

    assert reader.data == b"<[0 ab 1,2][1 x 7]"


async def test_a_congested_reader_gets_merged_steps_later() -> None:
    """While the reader is behind nothing is written; then each choice's steps are one event."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 0), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    for token_id in range(4):
        reply.delta(0, "abcd"[token_id], [token_id], None)
    assert reader.data == b"<"

    reader.congested = False
    reply.resume()

    assert reader.data == b"<[0 abcd 0,1,2,3]"


async def test_the_sink_is_notified_of_buffered_bytes() -> None:
    """Counting text, tokens and log-probabilities, from congestion until the reader has caught up."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 3), RecordedSink()
    reply.attach(reader)
    reply.delta(0, "a", [1], None)
    assert reader.held_bytes == 0

    reader.congested = True
    sizes = []
    scored = [ScoredPosition.of(*[ScoredToken(1, "b", -1.0, 1)] * 20)]
    for text, logprobs in (("b", None), ("b" * 1000, None), ("b", scored)):
        before = reader.held_bytes
        reply.delta(0, text, [2], None, logprobs)
        sizes.append(reader.held_bytes - before)
    assert 0 < sizes[0] < sizes[1] < sizes[2]
    assert sizes[1] - sizes[0] == 999
    reader.congested = False
    reply.resume()

    assert reader.held_bytes == 0


async def test_many_buffered_log_probabilities_are_sent_in_parts() -> None:
    """One choice has those of a slow reader's backlog: they are rendered with turns for others, and none is lost."""

    class LongEncoder(FakeEncoder):
        def delta(self, *args: Any) -> bytes:
            rendered.append(len(args[4]))
            return super().delta(*args) + b"x" * 100_000

    rendered: list[int] = []
    encoder = LongEncoder()
    reply, reader = StreamedReply(encoder, 1, 0), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    for number in range(2_000):
        scored = ScoredPosition.of(*[ScoredToken(number, "b", -1.0, 1)] * 20)
        reply.delta(0, "a", [number], STOP if number == 1_999 else None, [scored])
    held = reader.held_bytes

    reader.congested = False
    reply.resume()
    assert 0 < len(rendered) < 4
    assert 0 < reader.held_bytes < held
    await reply.wait()

    assert max(rendered) <= 26
    assert [position[0].token_id for position in encoder.logprobs] == list(range(2_000))
    assert reader.held_bytes == 0


async def test_many_buffered_steps_of_a_parser_are_sent_in_parts() -> None:
    """A parser takes its time for each, even if there is nothing to send; others have their turn, and none is lost."""
    clock, parsed = Clock(), list[int]()
    reply, reader = StreamedReply(SlowParsedEncoder(clock, parsed), 1, 0, clock=clock), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    for number in range(2_000):
        reply.delta(0, "a", [number], STOP if number == 1_999 else None)

    reader.congested = False
    reply.resume()
    assert 0 < len(parsed) < 20
    await reply.wait()

    assert parsed == [*range(2_000)]


async def test_many_parsed_choices_of_one_frame_have_their_turns() -> None:
    """Each begins and ends a parser, which takes a millisecond: one choice after the other, with others in between."""
    clock, parsed = Clock(), list[int]()
    reply, reader = StreamedReply(SlowParsedEncoder(clock, parsed), 100, 0, clock=clock), RecordedSink()
    reply.attach(reader)

    for index in range(100):
        reply.delta(index, "a", [index], STOP)
    at_once = len(parsed)
    await reply.wait()

    assert (at_once, parsed) == (0, [*range(100)])


async def test_few_parsed_choices_are_sent_at_once() -> None:
    """As their steps come."""
    clock, parsed = Clock(), list[int]()
    reply = StreamedReply(SlowParsedEncoder(clock, parsed), 2, 0, clock=clock)
    reply.attach(RecordedSink())

    reply.delta(1, "a", [7], None)

    assert parsed == [7]


async def test_large_buffered_output_is_sent_in_parts() -> None:
    """Choices that all begin with a long text don't keep other requests waiting; nothing is lost or held."""
    reply, reader = StreamedReply(FakeEncoder(), 64, 0), RecordedSink()
    for index in range(64):
        reply.delta(index, "a" * 2**15, [1], STOP)

    reply.attach(reader)
    at_once = len(reader.data)
    await reply.wait()

    assert 2**15 < at_once < 2**20
    assert len(reader.data) > 64 * 2**15
    assert reader.data.endswith(b"0+64>end")


class LongOpening(FakeEncoder):
    """An encoder whose opening has many parts, and may fail."""

    fails = False

    def opening(self) -> Iterator[bytes]:
        """Render long parts."""
        for _ in range(64):
            yield b"<" * 2**15
            if self.fails:
                raise ValueError("not to be rendered")


async def test_a_long_opening_is_sent_in_parts_before_anything_else() -> None:
    """Steps that come meanwhile wait behind it."""
    reply, reader = StreamedReply(LongOpening(), 1, 3), RecordedSink()

    reply.attach(reader)
    at_once = len(reader.data)
    reply.delta(0, "a", [1], STOP)
    await reply.wait()

    assert 2**15 < at_once < 2**20
    assert reader.data == b"<" * 64 * 2**15 + b"[0 a 1 stop]3+1>end"


async def test_a_slow_reader_gets_an_opening_when_it_has_caught_up() -> None:
    """Whoever does not read has no more of it rendered."""
    reply, reader = StreamedReply(LongOpening(), 1, 3), RecordedSink()
    reader.congested = True

    reply.attach(reader)
    reply.delta(0, "a", [1], STOP)
    assert not reader.data
    reader.congested = False
    reply.resume()
    await reply.wait()

    assert reader.data.endswith(b"<[0 a 1 stop]3+1>end")


class LongFirstDelta(FakeEncoder):
    """An encoder that renders what has a token 1 in many parts."""

    def delta(  # type: ignore[override]
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes | Iterator[bytes]:
        """Render long parts."""
        if 1 not in token_ids:
            return super().delta(index, text, token_ids, finish, logprobs)
        return iter([f"({index}".encode(), *[b"-" * 2**15] * 63, b")"])


@pytest.mark.parametrize(("waits", "then"), [(False, "[1 b 2 stop][0 c 3 stop]"), (True, "[1 b 2 stop]")])
async def test_a_long_delta_is_sent_in_parts_before_any_other(waits: bool, then: str) -> None:
    """Others have their turn, and a slow reader gets it when it has caught up, also if the delta had to wait before."""
    reply, reader = StreamedReply(LongFirstDelta(), 2, 3), RecordedSink()
    if not waits:
        reply.attach(reader)
    reply.delta(0, "a", [1], None)
    reply.delta(1, "b", [2], STOP)
    reply.delta(0, "c", [3], STOP)
    if waits:
        reply.attach(reader)
    at_once = len(reader.data)
    reader.congested = True
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert at_once == len(reader.data) < 2**20
    reader.congested = False
    reply.resume()
    await reply.wait()

    assert reader.data.decode() == f"<(0{'-' * 63 * 2**15}){then}3+3>end"


class LateEnds(FakeEncoder):
    """Renders the ends of the first choice once it may."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.may_end = asyncio.Event()
        self._fails = fails

    def delta(  # type: ignore[override]
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> ChunkOutput:
        """Render late."""
        rendered = super().delta(index, text, token_ids, finish, logprobs)
        return rendered if index or finish is None else self._late(rendered)

    async def _late(self, rendered: bytes) -> bytes:
        await self.may_end.wait()
        if self._fails:
            raise ValueError("cannot parse this")
        return rendered


@pytest.mark.parametrize("waits", [False, True])
async def test_what_takes_long_to_render_is_sent_before_any_other(waits: bool) -> None:
    """Others have their turn meanwhile; what comes later waits for it, and so does the end."""
    encoder, reader = LateEnds(), RecordedSink()
    reply = StreamedReply(encoder, 2, 3)
    if not waits:
        reply.attach(reader)
    reply.delta(0, "a", [1], STOP)
    reply.delta(1, "b", [2], None)
    if waits:
        reply.attach(reader)
    reply.delta(1, "c", [3], STOP)
    reply.resume()
    await asyncio.sleep(0)
    assert reader.data == b"<"

    encoder.may_end.set()
    await reply.wait()

    assert reader.data.decode() == "<[0 a 1 stop][1 bc 2,3 stop]3+3>end"


async def test_what_is_rendered_late_and_fails_ends_the_reply() -> None:
    """With what was held back for it, then the error."""
    encoder, reader = LateEnds(fails=True), RecordedSink()
    reply = StreamedReply(encoder, 2, 3)
    reply.attach(reader)
    reply.delta(0, "a", [1], STOP)
    reply.delta(1, "b", [2], None)

    encoder.may_end.set()
    await reply.wait()

    assert reader.data == b"<[1 b 2]!The reply could not be processed: cannot parse this" + b"end"


async def test_an_error_waits_for_what_is_rendered_late() -> None:
    """It is the last event of a stream."""
    encoder, reader = LateEnds(), RecordedSink()
    reply = StreamedReply(encoder, 2, 3)
    reply.attach(reader)
    reply.delta(0, "a", [1], STOP)
    reply.fail(WorkerLost("gone"))
    assert reader.data == b"<"

    encoder.may_end.set()
    await reply.wait()

    assert reader.data == b"<[0 a 1 stop]!gone" + b"end"


async def test_what_is_rendered_for_a_reader_who_has_left_is_dropped() -> None:
    """Nothing is written to its connection."""
    encoder, reader = LateEnds(), RecordedSink()
    reply = StreamedReply(encoder, 1, 3)
    reply.attach(reader)
    reply.delta(0, "a", [1], STOP)
    reply.give_up()
    await reply.wait()

    encoder.may_end.set()
    for _ in range(4):
        await asyncio.sleep(0)

    assert reader.data == b"<"


async def test_what_waits_behind_a_long_delta_is_counted_for_a_slow_reader() -> None:
    """As whatever is not sent."""
    reply, reader = StreamedReply(LongFirstDelta(), 1, 3), RecordedSink()
    reply.attach(reader)
    reply.delta(0, "a", [1], None)
    reader.congested = True
    await asyncio.sleep(0)
    reply.delta(0, "b" * 1000, [2], None)

    assert reader.held_bytes > 1000


class LongClosing(FakeEncoder):
    """An encoder whose closing has many parts, and may fail."""

    fails = False

    def closing(self, usage: Usage) -> Iterator[bytes]:  # type: ignore[override]
        """Render long parts."""
        for _ in range(64):
            yield b">" * 2**15
            if self.fails:
                raise ValueError("not to be rendered")


async def test_a_long_closing_is_sent_in_parts_as_they_are_read() -> None:
    """Others have their turn; for a reader that stands still nothing more is rendered."""
    reply, reader = StreamedReply(LongClosing(), 1, 3), RecordedSink()
    reply.attach(reader)

    reply.delta(0, "a", [1], STOP)
    at_once = len(reader.data)
    reader.congested = True
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 2**15 < at_once == len(reader.data) < 2**20
    reader.congested = False
    reply.resume()
    await reply.wait()

    assert reader.data == b"<[0 a 1 stop]" + b">" * 64 * 2**15 + b"end"


async def test_a_long_closing_that_cannot_be_rendered_fails_the_reply() -> None:
    """The error is its last event."""
    encoder, reader = LongClosing(), RecordedSink()
    encoder.fails = True
    reply = StreamedReply(encoder, 1, 3)
    reply.attach(reader)

    reply.delta(0, "a", [1], STOP)
    await reply.wait()

    assert reader.data.endswith(b">!The reply could not be processed: not to be rendered" + b"end")


async def test_an_opening_that_cannot_be_rendered_fails_the_reply() -> None:
    """The error is its last event."""
    encoder, reader = LongOpening(), RecordedSink()
    encoder.fails = True
    reply = StreamedReply(encoder, 1, 3)

    reply.attach(reader)
    await reply.wait()

    assert reader.data.startswith(b"<")
    assert reader.data.endswith(b"end")
    assert b"!" in reader.data


async def test_output_of_which_a_part_is_sent_is_held_in_part() -> None:
    """A reader that is slow again while it gets what was held has only the rest held."""
    reply, reader = StreamedReply(FakeEncoder(), 2, 0), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    reply.delta(0, "a", [1], None)
    held = reader.held_bytes
    reply.delta(1, "b", [1], None)
    reader.congested = False
    reader.write = lambda data: setattr(reader, "congested", True)  # type: ignore[method-assign]

    reply.resume()

    assert held
    assert reader.held_bytes == held


async def test_the_end_waits_for_a_congested_reader() -> None:
    """A reply that ended while its reader was behind is completed once the reader has caught up."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 0), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    reply.delta(0, "a", [1], STOP)
    assert reader.data == b"<"

    reader.congested = False
    reply.resume()
    await reply.wait()

    assert reader.data == b"<[0 a 1 stop]0+1>" + b"end"


async def test_a_step_after_congestion_does_not_overtake_held_ones() -> None:
    """Order is kept even if a step arrives after the reader has drained but before `resume`."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 0), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    reply.delta(0, "a", [1], None)
    reader.congested = False

    reply.delta(0, "b", [2], None)
    reply.resume()

    assert reader.data == b"<[0 ab 1,2]"


async def test_an_error_before_the_first_token_is_the_response_itself() -> None:
    """`begin` returns the error, so that it becomes an HTTP status instead of an event."""
    reply = StreamedReply(FakeEncoder(), 1, 0)
    lost = WorkerLost("gone")

    reply.fail(lost)

    assert await reply.begin() is lost


async def test_an_error_in_mid_stream_is_its_last_event() -> None:
    """Sent output is followed by the error and the ending; later failures add nothing."""
    reply, reader = StreamedReply(FakeEncoder(), 2, 0), RecordedSink()
    reply.first_tokens()
    reply.attach(reader)
    reply.delta(0, "a", [1], None)

    reply.fail(WorkerLost("gone"))
    reply.fail(WorkerLost("gone too"))
    await reply.wait()

    assert reader.data == b"<[0 a 1]!gone" + b"end"


async def test_nothing_comes_after_an_error() -> None:
    """Other choices, or the same one, may go on until they are aborted."""
    reply, reader = StreamedReply(FakeEncoder(), 2, 0), RecordedSink()
    reply.attach(reader)
    reply.delta(0, "a", [1], None)
    reply.fail(WorkerLost("lost"))
    before = reader.data

    reply.delta(0, "b", [2], STOP)
    reply.delta(1, "x", [7], STOP)
    await reply.wait()

    assert reader.data == before
    assert before.endswith(b"!lostend")


async def test_steps_without_text_are_left_out() -> None:
    """A step that completes no character is not sent, but its tokens count."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 0), RecordedSink()
    reply.attach(reader)

    reply.delta(0, "", [1], None)
    reply.delta(0, "é", [2], STOP)
    await reply.wait()

    assert reader.data == "<[0 é 2 stop]0+2>".encode() + b"end"


async def test_giving_up_ends_all_waiting() -> None:
    """When the reader has disconnected, `begin` and `wait` return."""
    reply = StreamedReply(FakeEncoder(), 1, 0)

    reply.give_up()

    assert await reply.begin() is None
    await reply.wait()


async def test_an_interval_merges_tokens() -> None:
    """The first and last chunks are sent at once, others with that number of tokens; choices count separately."""
    reply, reader = StreamedReply(FakeEncoder(), 2, 0, interval=3), RecordedSink()
    reply.attach(reader)

    for token_id in range(6):
        reply.delta(0, "a", [token_id], None)
    reply.delta(1, "b", [9], None)
    assert reader.data == b"<[0 a 0][0 aaa 1,2,3][1 b 9]"

    reply.delta(0, "c", [6], STOP)
    reply.delta(1, "d", [8], STOP)
    await reply.wait()
    assert reader.data.endswith(b"[0 aac 4,5,6 stop][1 d 8 stop]0+9>" + b"end")


async def test_an_error_flushes_buffered_text() -> None:
    """When a reply fails, the client first receives all text so far."""
    reply, reader = StreamedReply(FakeEncoder(), 1, 0, interval=10), RecordedSink()
    reply.attach(reader)
    reply.delta(0, "a", [1], None)
    reply.delta(0, "b", [2], None)

    reply.fail(WorkerLost("gone"))
    await reply.wait()

    assert reader.data == b"<[0 a 1][0 b 2]!gone" + b"end"


async def test_merged_steps_keep_their_logprobs() -> None:
    """Log-probabilities of merged steps are complete and in order."""
    encoder, reader = FakeEncoder(), RecordedSink()
    reply = StreamedReply(encoder, 1, 0)
    scores = [ScoredPosition.of(ScoredToken(token_id, "", -1.0, 1)) for token_id in range(3)]
    for score in scores:
        reply.delta(0, "a", [0], None, [score])

    reply.attach(reader)

    assert encoder.logprobs == scores


async def test_steps_for_a_parser_are_not_merged() -> None:
    """Buffered steps are rendered one by one if merging would change a parser's input."""
    encoder, reader = FakeEncoder(), RecordedSink()
    encoder.takes_single_steps = True
    reply = StreamedReply(encoder, 1, 0)
    reply.delta(0, "a", [1], None)
    reply.delta(0, "b", [2], None)
    reply.delta(0, "c", [3], STOP)

    reply.attach(reader)

    assert reader.data == b"<[0 a 1][0 b 2][0 c 3 stop]0+3>" + b"end"


class Brittle(FakeEncoder):
    """An encoder that fails to render one choice or the closing."""

    def __init__(self, index: int | None = None, closing: bool = False) -> None:
        super().__init__()
        self._index = index
        self._closing = closing

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render everything of other choices."""
        if index == self._index:
            raise ValueError("cannot show this")
        return super().delta(index, text, token_ids, finish, logprobs)

    def closing(self, usage: Usage) -> bytes:
        """Show usage."""
        if self._closing:
            raise ValueError("cannot close")
        return super().closing(usage)


async def test_a_buffered_choice_that_cannot_be_rendered_fails_the_reply() -> None:
    """Buffered output of the others is sent first."""
    reply, reader = StreamedReply(Brittle(index=0), 2, 3), RecordedSink()
    for index in range(2):
        reply.delta(index, "a", [1], None)

    reply.attach(reader)
    await reply.wait()

    assert reader.data == b"<[1 a 1]!The reply could not be processed: cannot show this" + b"end"


async def test_a_reply_that_cannot_be_closed_ends_with_an_error() -> None:
    """Also if its reader has just caught up."""
    reply, reader = StreamedReply(Brittle(closing=True), 1, 3), RecordedSink()
    reply.attach(reader)
    reader.congested = True
    reply.delta(0, "a", [1], STOP)
    reader.congested = False

    reply.resume()
    await reply.wait()

    assert reader.data == b"<[0 a 1 stop]!The reply could not be processed: cannot close" + b"end"
