"""A message as parts (text, reasoning, tool calls), for routes whose replies are lists of them."""

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.parsing.message import (
    MOST_APART,
    MOST_INLINE,
    MessageDelta,
    MessageParser,
    ParsedMessage,
    ParserFailed,
    ToolCallDelta,
)
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, WorkerLost

Kind = Literal["reasoning", "text", "tool_call"]


@dataclass(slots=True)
class MessagePart:
    """One part of a message, complete or in progress."""

    kind: Kind
    index: int
    """Its position in the message."""
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    logprobs: list[ScoredPosition] = field(default_factory=list)
    last: bool = False
    """Whether it is the last part of a complete message."""

    def add(self, text: str) -> None:
        """Add text at its end."""
        self.texts.append(text)
        if len(self.texts) > MOST_APART:
            self.texts = ["".join(self.texts)]

    @property
    def text(self) -> str:
        """Text, reasoning, or a call's arguments."""
        return "".join(self.texts)


def full_parts(message: ParsedMessage, logprobs: list[ScoredPosition] | None = None) -> list[MessagePart]:
    """Return the parts of a full message; an empty one has an empty text, because clients expect a part.

    Whitespace next to tool calls is not text: models separate their calls with it.
    """
    parts = [MessagePart("reasoning", 0, texts=[message.reasoning])] if message.reasoning else []
    content = message.content or ""
    if content.strip() or (not message.tool_calls and (content or not parts)):
        parts.append(MessagePart("text", len(parts), texts=[content], logprobs=logprobs or []))
    for call in message.tool_calls:
        parts.append(MessagePart("tool_call", len(parts), call.id, call.name, [call.arguments]))
    parts[-1].last = True
    return parts


def abort_error(reason: str) -> TokenwireError | None:
    """Return the error of a reply that was aborted, for which these APIs have no finish reason.

    What aborts it does not say so with the sequence: a worker that stops, a pause, or weights beyond its limits.
    """
    if reason != "abort":
        return None
    return WorkerLost(
        "The reply was aborted: its worker was stopped or paused, or its weights fell behind the limits.",
        retry_after_s=1,
    )


class PartRenderer(Protocol):
    """Renders a stream's events in the format of one route, each complete."""

    def opening(self, usage: Usage) -> str:
        """Render the events before the first part; the usage has only prompt tokens."""

    def open_part(self, part: MessagePart) -> str:
        """Render the start of a part."""

    def part_delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render new text of the open part."""

    def close_part(self, part: MessagePart, finish: Finish | None) -> str:
        """Render the end of a part; the last part of a message has a finish."""

    def closing(self, parts: list[MessagePart], finish: Finish, usage: Usage) -> str:
        """Render the events after the last part."""

    def keep_part(self, part: MessagePart, finish: Finish) -> None:
        """End the only part of a message, whose end is rendered later, by `ending`."""

    def ending(self, part: MessagePart, finish: Finish, usage: Usage) -> Iterator[bytes]:
        """Render the end of such a part and the events after it, in pieces."""

    def error(self, error: TokenwireError, parts: list[MessagePart]) -> str:
        """Render an error within the stream."""

    def as_messages(self, parts: list[MessagePart]) -> Sequence[ChatMessage]:
        """Return the chat messages that parts become when a client sends them back."""


class PartStream:
    """The ChunkEncoder of routes whose events follow the parts of a message, one part open at a time."""

    ending = b""

    def __init__(self, call: ChatCall, renderer: PartRenderer) -> None:
        self._call = call
        self._parser = None if call.plan is None else call.parser()
        self.takes_single_steps = self._parser is not None
        # Parsers get every token, even without text.
        self.shows_empty_deltas = self._parser is not None or call.body.wanted_logprobs is not None
        self._renderer = renderer
        self._parts: list[MessagePart] = []
        self._open: MessagePart | None = None
        self._calls: dict[int, MessagePart] = {}
        self._held = ""
        """Text withheld until it is clear whether it belongs to a text part."""
        self._token_ids = array("I") if call.counts_reasoning and self._parser is not None else None
        self._prefill = Usage(call.prepared.prompt_tokens)
        self._finish = Finish("abort")
        self._scored: MessagePart | None = None
        """The message's only part, once it has ended, if it has log-probabilities, which take long to render."""

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Record how much of the prompt was read from the cache, and written to it."""
        self._prefill.add_cache(prefill)

    def opening(self) -> Iterator[bytes]:
        """Render the events before the first delta."""
        yield self._renderer.opening(self._prefill).encode()

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> ChunkOutput:
        """Render the new output of the message; many tokens, and the end of a long one, are parsed in a thread."""
        if self._token_ids is not None:
            self._token_ids.extend(token_ids)
        if self._parser is None:
            return self._rendered(self._append("text", text, logprobs or []) if text or logprobs else "", finish)
        parser = self._parser
        asks = finish is not None or parser.waiting + len(token_ids) > MOST_INLINE
        if asks and parser.takes_long(text, token_ids, finish is not None):
            return self._late(parser, text, token_ids, finish)
        return self._parsed(parser.delta(text, token_ids, finish is not None), finish)

    async def _late(self, parser: MessageParser, text: str, token_ids: list[int], finish: Finish | None) -> bytes:
        return self._parsed(await asyncio.to_thread(parser.delta, text, token_ids, finish is not None), finish)

    def _parsed(self, delta: MessageDelta | None, finish: Finish | None) -> bytes:
        return self._rendered("" if delta is None else "".join(self._add_delta(delta)), finish)

    def _rendered(self, events: str, finish: Finish | None) -> bytes:
        """Return events, with those of the message's end if it has a finish."""
        if finish is not None:
            self._finish = finish
            if self._open is not None and self._open.logprobs:
                self._scored, self._open = self._open, None
                self._scored.last = True
                self._renderer.keep_part(self._scored, finish)
            else:
                events += self._end_message()
            self._call.keep(0, self._renderer.as_messages(self._parts))
        return events.encode()

    def closing(self, usage: Usage) -> bytes | Iterator[bytes]:
        """Render the events after the last part."""
        if self._scored is not None:
            usage.add_cache(self._prefill)
            return self._renderer.ending(self._scored, self._finish, usage)
        error = abort_error(self._finish.reason)
        if error is not None:
            return self.error(error)
        usage.add_cache(self._prefill)
        if self._token_ids is not None and self._parser is not None:
            usage.reasoning_tokens = self._parser.reasoning_tokens(self._token_ids)
        return self._renderer.closing(self._parts, self._finish, usage).encode()

    def error(self, error: TokenwireError) -> bytes:
        """Render an error within the stream."""
        return self._renderer.error(error, self._parts).encode()

    def _add_delta(self, delta: MessageDelta) -> Iterator[str]:
        if delta.reasoning:
            yield self._append("reasoning", delta.reasoning)
        if delta.content:
            yield self._add_text(delta.content)
        for call in delta.tool_calls:
            yield self._add_call(call)

    def _add_text(self, text: str) -> str:
        """Render text, unless it is within a call, or whitespace next to one."""
        part = self._open
        if part is not None and part.kind == "text":
            return self._append("text", text)
        self._held += text
        if (part is not None and part.kind == "tool_call") or not self._held.strip():
            return ""
        return self._append("text", self._take_held())

    def _add_call(self, call: ToolCallDelta) -> str:
        part, events = self._calls.get(call.index), ""
        if part is None:
            events = self._close_part()
            part = self._calls[call.index] = MessagePart("tool_call", len(self._parts), call.id or "", call.name or "")
            events += self._open_part(part)
        if not call.arguments:
            return events
        if part is not self._open:
            raise ParserFailed("The tool call parser continued a call that had ended.")
        part.add(call.arguments)
        return events + self._renderer.part_delta(part, call.arguments, [])

    def _append(self, kind: Kind, text: str, logprobs: list[ScoredPosition] | None = None) -> str:
        part, events = self._open, ""
        if part is None or part.kind != kind:
            events = self._close_part()
            part = MessagePart(kind, len(self._parts))
            events += self._open_part(part)
        part.add(text)
        scored = logprobs or []
        part.logprobs += scored
        return events + self._renderer.part_delta(part, text, scored)

    def _open_part(self, part: MessagePart) -> str:
        self._parts.append(part)
        self._open = part
        return self._renderer.open_part(part)

    def _close_part(self, finish: Finish | None = None) -> str:
        """End the open part; then render withheld text."""
        part, self._open = self._open, None
        held = self._take_held()
        if part is None:
            return ""
        if not held.strip():
            part.last = finish is not None
            return self._renderer.close_part(part, finish)
        return self._renderer.close_part(part, None) + self._append("text", held) + self._close_part(finish)

    def _end_message(self) -> str:
        if self._parts and (self._calls or not self._held):
            return self._close_part(self._finish)
        held = self._take_held()
        events = self._append("text", held) if held else self._open_part(MessagePart("text", 0))
        return events + self._close_part(self._finish)

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held
