"""A streamed reply: one server-sent event per choice and step, merged while the reader is slow."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tokenwire.coordinator.output.progress import Progress
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, reply_error

DONE = b"data: [DONE]\n\n"
"""How OpenAI's chat and completions end their streams."""


# What Python takes for a step, a token and a scored token, about.
_STEP_BYTES, _TOKEN_BYTES, _SCORED_BYTES = 100, 40, 250


class Sink(Protocol):
    """Where events go: one HTTP response."""

    @property
    def congested(self) -> bool:
        """Whether the reader is behind; then nothing should be written until it says so."""

    def write(self, data: bytes) -> None:
        """Write, never blocking."""

    def hold(self, size_bytes: int) -> None:
        """Hear how much is held back while the reader is behind; it may end the reader's patience, or ours."""


class ChunkEncoder(Protocol):
    """Renders events in the shape of one route; see coordinator.api."""

    shows_empty_deltas: bool
    """Whether a step without new text still says something (its token ids)."""
    takes_single_steps: bool
    """Whether steps must not be merged before they are rendered, because a parser reads them."""
    ending: bytes
    """The end of the stream, behind the closing or an error; empty where those are the end."""

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Hear how a choice's prompt was computed, before anything is rendered of it."""

    def opening(self) -> bytes:
        """Render what comes before the first delta."""

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render what a choice gained; nothing where there is nothing to say."""

    def closing(self, usage: Usage) -> bytes:
        """Render what comes after the last delta."""

    def error(self, error: TokenwireError) -> bytes:
        """Render an error in mid-stream."""


class StreamedReply:
    """Renders steps into a sink. Until a sink is attached, and while it is congested, steps are merged.

    Memory is bounded by the reply's own text, however slow the reader, and by what the sink bears. With an interval,
    steps are always merged until a choice has gained as many tokens; its first and last ones wait for nothing.
    """

    __slots__ = (
        "_backlog",
        "_counts",
        "_done",
        "_failure",
        "_first",
        "_held",
        "_interval",
        "_merges",
        "_open",
        "_prompt_tokens",
        "_render",
        "_shape",
        "_shows_empty",
        "_sink",
        "_started",
        "progress",
    )

    def __init__(self, shape: ChunkEncoder, choices: int, prompt_tokens: int, interval: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self._shape = shape
        self.progress = Progress(choices)
        self._open = choices
        self._render = shape.delta
        self._shows_empty = shape.shows_empty_deltas
        self._prompt_tokens = prompt_tokens
        self._counts = [0] * choices
        self._interval = interval
        self._started: set[int] = set()
        self._sink: Sink | None = None
        self._backlog: dict[int, _Unsent] = {}
        self._held = 0
        self._merges = not shape.takes_single_steps or interval > 1
        self._failure: TokenwireError | None = None
        self._first: asyncio.Future[TokenwireError | None] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()

    # What choices write to.

    def first_tokens(self) -> None:
        """Wake up whoever waits to begin the response."""
        if not self._first.done():
            self.progress.begun()
            self._first.set_result(None)

    def tokens_of(self, index: int) -> int:
        """Return how many tokens a choice has gained, sent or not."""
        return self._counts[index]

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Pass on how a choice's prompt was computed."""
        self.progress.cached_tokens[index] = prefill.cached_tokens
        self._shape.prefilled(index, prefill)

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> None:
        """Take what a choice gained in one step."""
        self._counts[index] += len(token_ids)
        sink = self._sink
        if sink is None or sink.congested or self._interval > 1 or self._backlog:
            self._keep(index, text, token_ids, finish, logprobs)
            if self._interval > 1 and self._is_due(index):
                self._send(index)
        elif text or finish is not None or self._shows_empty:
            sink.write(self._render(index, text, token_ids, finish, logprobs))
        if finish is not None:
            self.progress.finished(finish)
            self._open -= 1
            self._finish_if_complete()

    def fail(self, error: TokenwireError) -> None:
        """End the reply with an error: as the response itself if nothing was sent yet, else as its last event."""
        if self._failure is not None or self._done.done():
            return
        self._failure = self.progress.failure = error
        if not self._first.done():
            self._first.set_result(error)
        self.resume()

    # What the response uses.

    async def begin(self) -> TokenwireError | None:
        """Wait until there is something to send; returns the error if that is all there is."""
        return await self._first

    def attach(self, sink: Sink) -> None:
        """Send the opening and what has gathered, and from now on every step."""
        self._sink = sink
        sink.write(self._shape.opening())
        self.resume()

    def resume(self) -> None:
        """Send what was held back, now that the reader has caught up."""
        if self._sink is None or self._sink.congested:
            return
        while self._backlog:  # one that breaks sends the others itself
            self._send(next(iter(self._backlog)))
        if self._held:
            self._held = 0
            self._sink.hold(0)
        self._finish_if_complete()

    def give_up(self) -> None:
        """The reader is gone: `wait` and `begin` return."""
        if not self._first.done():
            self._first.set_result(None)
        if not self._done.done():
            self._done.set_result(None)

    async def wait(self) -> None:
        """Wait until everything was handed to the sink. Who is cancelled may wait again."""
        await asyncio.shield(self._done)

    # Internals.

    def _keep(
        self,
        index: int,
        text: str,
        token_ids: Sequence[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None,
    ) -> None:
        unsent = self._backlog.get(index)
        if unsent is None:
            unsent = self._backlog[index] = _Unsent()
        elif not self._merges:
            unsent = unsent.follow()
        if text:
            unsent.texts.append(text)
        unsent.token_ids += token_ids
        unsent.finish = finish
        if logprobs is not None:
            unsent.add_logprobs(logprobs)
        if self._sink is not None and self._sink.congested:
            self._held += _size_bytes(text, token_ids, logprobs)
            self._sink.hold(self._held)

    def _is_due(self, index: int) -> bool:
        unsent = self._backlog[index]
        if self._sink is None or self._sink.congested:
            return False
        return index not in self._started or unsent.finish is not None or len(unsent.token_ids) >= self._interval

    def _send(self, index: int) -> None:
        assert self._sink is not None
        unsent = self._backlog.pop(index)
        self._started.add(index)
        for step in unsent.steps():
            if step.texts or step.finish is not None or self._shows_empty:
                text = "".join(step.texts)
                try:
                    self._sink.write(self._render(index, text, step.token_ids, step.finish, step.logprobs))
                except Exception as error:
                    self.fail(reply_error(error))
                    return

    def _finish_if_complete(self) -> None:
        if self._sink is None or self._backlog or self._done.done():
            return
        if self._failure is not None:
            self._sink.write(self._shape.error(self._failure) + self._shape.ending)
        elif self._open:
            return
        else:
            try:
                closing = self._shape.closing(Usage(self._prompt_tokens, sum(self._counts)))
            except Exception as error:
                self.fail(reply_error(error))
                return
            self._sink.write(closing + self._shape.ending)
        self._done.set_result(None)


def _size_bytes(text: str, token_ids: Sequence[int], logprobs: list[ScoredPosition] | None) -> int:
    size = _STEP_BYTES + len(text) + _TOKEN_BYTES * len(token_ids)
    return size if logprobs is None else size + _SCORED_BYTES * sum(map(len, logprobs))


class _Unsent:
    """What a choice gained and the reader has not seen: one step, or several merged, and those that follow."""

    __slots__ = ("finish", "following", "logprobs", "texts", "token_ids")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.finish: Finish | None = None
        self.logprobs: list[ScoredPosition] | None = None
        self.following: list[_Unsent] = []

    def follow(self) -> "_Unsent":
        """Begin a step that stays apart from those before it."""
        self.following.append(_Unsent())
        return self.following[-1]

    def steps(self) -> "list[_Unsent]":
        """Return all steps in order."""
        return [self, *self.following]

    def add_logprobs(self, logprobs: list[ScoredPosition]) -> None:
        if self.logprobs is None:
            self.logprobs = []
        self.logprobs += logprobs
