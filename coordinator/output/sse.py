"""A streamed reply: one server-sent event per choice and step, merged for a slow reader.

One file, since what is sent, held back and ended is the state of one reply.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol

from tokenwire.coordinator.output.progress import Progress
from tokenwire.coordinator.output.unsent import UnsentOutput, size_bytes
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, reply_error

_MOST_AT_ONCE = 256 * 1024
"""Bytes that are rendered before other requests have their turn: many choices may begin with a long prompt."""
_TURN_S = 0.01
"""What they may take: a parser takes its time for a step, whether or not there is something to send."""
_FEW_PARSED = 8
"""Choices that are parsed as their steps come: of more, one frame may begin or end so many that others would wait."""

ChunkOutput = bytes | Iterator[bytes] | Coroutine[Any, Any, bytes]
"""Output of a choice: long output in parts, made as they are sent, and what takes long to make as a coroutine that
leaves the event loop to others."""


class Sink(Protocol):
    """The HTTP response to which events are written."""

    @property
    def congested(self) -> bool:
        """Whether the reader is behind; write nothing until `resume` is called."""

    def write(self, data: bytes) -> None:
        """Write without blocking."""

    def hold(self, size_bytes: int) -> None:
        """Record how much is held back for a slow reader; the sink may close the connection."""


class _Ended:
    """The sink of a reply that has ended with an error."""

    congested = False

    def write(self, data: bytes) -> None:
        """Drop it."""

    def hold(self, size_bytes: int) -> None:
        """Hold nothing."""


class ChunkEncoder(Protocol):
    """Encodes events in the format of one route; see coordinator.api."""

    shows_empty_deltas: bool
    """Whether steps without new text are rendered, because of their token ids."""
    takes_single_steps: bool
    """Whether steps must not be merged before rendering, because a parser reads them."""
    ending: bytes
    """The end of the stream after the closing or an error; empty if those are the end."""

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record a choice's prefill, before its first delta."""

    def opening(self) -> Iterable[bytes]:
        """Render the beginning of the stream, one part after the other."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> ChunkOutput:
        """Render the new output of a choice; empty if there is nothing to send."""

    def closing(self, usage: Usage) -> bytes | Iterator[bytes]:
        """Render the end of a complete stream; a long one in parts, made as they are sent."""

    def error(self, error: TokenwireError) -> bytes:
        """Render an error within the stream."""


class StreamedReply:
    """Renders steps into a sink. Steps are merged until a sink is attached, and while it is congested.

    Memory is bounded by the reply's own text and by the sink's limit. With an interval, steps are always merged up to
    that number of tokens per choice; the first and last ones are sent at once.
    """

    __slots__ = (
        "_at_once",
        "_attached",
        "_backlog",
        "_clock",
        "_closing",
        "_counts",
        "_done",
        "_encoder",
        "_failure",
        "_first",
        "_held_bytes",
        "_in_turns",
        "_interval",
        "_merges",
        "_open",
        "_opening",
        "_prompt_tokens",
        "_render",
        "_rendering",
        "_resumes_soon",
        "_shows_empty",
        "_sink",
        "_started",
        "progress",
    )

    def __init__(
        self,
        encoder: ChunkEncoder,
        choices: int,
        prompt_tokens: int,
        interval: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._encoder = encoder
        self._clock = clock
        self.progress = Progress([0] * choices)
        self._open = choices
        self._render = encoder.delta
        self._shows_empty = encoder.shows_empty_deltas
        self._prompt_tokens = prompt_tokens
        self._counts = [0] * choices
        self._interval = interval
        self._in_turns = encoder.takes_single_steps and choices > _FEW_PARSED
        self._at_once = interval == 1 and not self._in_turns
        self._started: set[int] = set()
        self._attached: Sink | None = None
        self._opening: Iterator[bytes] = iter(())
        self._closing: Iterator[bytes] | None = None
        """What is left of the end."""
        self._sink: Sink | None = None
        """None until the opening is written, and while long output is."""
        self._backlog: dict[int, UnsentOutput] = {}
        self._held_bytes = 0
        self._resumes_soon = False
        self._rendering: asyncio.Task[bytes] | None = None
        """Output that takes long to render: nothing is sent before it."""
        self._merges = not encoder.takes_single_steps or interval > 1
        self._failure: TokenwireError | None = None
        self._first: asyncio.Future[TokenwireError | None] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()

    # Called by choices.

    def first_tokens(self) -> None:
        """Wake up `begin`."""
        if not self._first.done():
            self.progress.on_first_tokens()
            self._first.set_result(None)

    def tokens_of(self, index: int) -> int:
        """Return the number of a choice's tokens so far, sent or not."""
        return self._counts[index]

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record a choice's prefill and pass it on to the encoder."""
        self.progress.cached_tokens[index] = prefill.cached_tokens
        self._encoder.prefilled(index, prefill)

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Send or buffer the output of one step of a choice."""
        self._counts[index] += len(token_ids)
        sink = self._sink
        if sink is None or sink.congested or not self._at_once or self._backlog:
            self._buffer(index, text, token_ids, finish, logprobs)
            if self._in_turns:
                self._resume_later()
            elif self._interval > 1 and self._is_due(index):
                self._send(index)
        elif text or finish is not None or self._shows_empty:
            chunk = self._render(index, text, token_ids, finish, logprobs)
            if type(chunk) is bytes:  # not a call, as isinstance is: this is for each token
                sink.write(chunk)
            elif not isinstance(chunk, bytes):
                self._send_first(chunk)
        if finish is not None:
            self.progress.on_finish(finish)
            self._open -= 1
            self._finish_if_complete()

    def fail(self, error: TokenwireError) -> None:
        """End the reply with an error: as the response itself if nothing has been sent, else as its last event."""
        if self._failure is not None or self._done.done():
            return
        self._failure = self.progress.failure = error
        if not self._first.done():
            self._first.set_result(error)
        self.resume()

    # Called by the response.

    async def begin(self) -> TokenwireError | None:
        """Wait for the first output; return the error if the reply failed before it."""
        return await self._first

    def attach(self, sink: Sink) -> None:
        """Send the opening and buffered steps, and from now on every step."""
        self._attached, self._opening = sink, iter(self._encoder.opening())
        self.resume()

    def resume(self) -> None:
        """Send the opening and buffered steps, after the reader has caught up."""
        sink = self._attached
        if sink is None or self._resumes_soon or self._rendering is not None or self._done.done():
            return
        if self._closing is not None and self._failure is None:
            self._send_closing(sink, self._closing)
            return
        sent, held, until = 0, self._held_bytes, self._clock() + _TURN_S
        while not (sink.congested or self._resumes_soon or self._rendering) and (self._backlog or self._sink is None):
            sent += self._send_opening(sink) if self._sink is None else self._send(next(iter(self._backlog)))
            if sent > _MOST_AT_ONCE or self._clock() > until:
                self._resume_later()
        if held != self._held_bytes:
            sink.hold(self._held_bytes)
        self._finish_if_complete()

    def give_up(self) -> None:
        """End `begin` and `wait`, because the reader has disconnected."""
        if not self._first.done():
            self._first.set_result(None)
        if not self._done.done():
            self._done.set_result(None)

    async def wait(self) -> None:
        """Wait until everything has been written to the sink; safe to call again after cancellation."""
        if not self._done.done():
            await asyncio.shield(self._done)

    # Internals.

    def _buffer(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> None:
        unsent = self._backlog.get(index)
        if unsent is None:
            unsent = self._backlog[index] = UnsentOutput()
        else:
            unsent = unsent.last(self._merges)
        if text:
            unsent.texts.append(text)
        unsent.token_ids += token_ids
        unsent.finish = finish
        if logprobs is not None:
            unsent.add_logprobs(logprobs)
        sink = self._sink or self._attached
        if sink is not None and sink.congested:
            held = size_bytes(text, token_ids, logprobs)
            unsent.held_bytes += held
            self._held_bytes += held
            sink.hold(self._held_bytes)

    def _send_first(self, output: Iterator[bytes] | Coroutine[Any, Any, bytes]) -> None:
        """Send this output, with turns for others in between, before any further output."""
        self._sink = None
        if isinstance(output, Coroutine):
            self._rendering = asyncio.create_task(output)
            self._rendering.add_done_callback(self._on_rendered)
        else:
            self._opening = output
            self._resume_later()

    def _on_rendered(self, rendering: asyncio.Task[bytes]) -> None:
        self._rendering = None
        error = asyncio.CancelledError() if rendering.cancelled() else rendering.exception()
        if error is None:
            self._opening = iter([rendering.result()])
        elif isinstance(error, Exception):
            self._sink = self._attached
            self.fail(reply_error(error))
        self.resume()

    def _resume_later(self) -> None:
        if not self._resumes_soon:
            self._resumes_soon = True
            asyncio.get_running_loop().call_soon(self._resume_now)

    def _resume_now(self) -> None:
        self._resumes_soon = False
        self.resume()

    def _send_opening(self, sink: Sink) -> int:
        """Send the next part of the opening, or of long output; return its bytes, 0 after the last one."""
        try:
            part = next(self._opening, None)
        except Exception as error:
            self._sink = sink
            self.fail(reply_error(error))
            return 0
        if part is None:
            self._sink = sink
            return 0
        sink.write(part)
        return len(part)

    def _is_due(self, index: int) -> bool:
        unsent = self._backlog[index]
        if self._sink is None or self._sink.congested:
            return False
        return index not in self._started or unsent.finish is not None or len(unsent.token_ids) >= self._interval

    def _send(self, index: int) -> int:
        """Send a choice's buffered steps, if they are large only some; return their bytes."""
        sink = self._sink
        assert sink is not None
        unsent = self._backlog.pop(index)
        self._started.add(index)
        sent, until = 0, self._clock() + _TURN_S
        for number, step in enumerate(unsent.steps()):
            if sent > _MOST_AT_ONCE or self._clock() > until:
                self._backlog[index] = unsent.without(number)
                self._resume_later()
                break
            self._held_bytes -= step.held_bytes
            if step.texts or step.finish is not None or self._shows_empty:
                text = "".join(step.texts)
                try:
                    chunk = self._render(index, text, step.token_ids, step.finish, step.logprobs)
                except Exception as error:
                    self._held_bytes -= sum([each.held_bytes for each in unsent.steps()[number + 1 :]])
                    self.fail(reply_error(error))
                    break
                if not isinstance(chunk, bytes):
                    if number + 1 < len(unsent.steps()):
                        self._backlog[index] = unsent.without(number + 1)
                    self._send_first(chunk)
                    break
                sink.write(chunk)
                sent += len(chunk)
        return sent

    def _finish_if_complete(self) -> None:
        if self._sink is None or self._backlog or self._done.done():
            return
        if self._failure is not None:
            self._sink.write(self._encoder.error(self._failure) + self._encoder.ending)
            self._sink = _Ended()  # what still runs is about to be aborted
        elif self._open:
            return
        else:
            try:
                closing = self._encoder.closing(Usage(self._prompt_tokens, sum(self._counts)))
            except Exception as error:
                self.fail(reply_error(error))
                return
            if not isinstance(closing, bytes):
                self._closing = closing
                self._send_closing(self._sink, closing)
                return
            self._sink.write(closing + self._encoder.ending)
        self._done.set_result(None)

    def _send_closing(self, sink: Sink, closing: Iterator[bytes]) -> None:
        """Send the next parts of a long end, as far as the reader is ready and others had their turn."""
        sent = 0
        while not sink.congested:
            if sent > _MOST_AT_ONCE:
                self._resume_later()
                return
            try:
                part = next(closing, None)
            except Exception as error:
                self.fail(reply_error(error))
                return
            if part is None:
                sink.write(self._encoder.ending)
                self._done.set_result(None)
                return
            sink.write(part)
            sent += len(part)
