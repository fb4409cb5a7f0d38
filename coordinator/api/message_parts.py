"""A message as its parts, text, reasoning and tool calls, for routes whose replies are lists of such."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tokenwire.coordinator.api.openai.chat import ChatCall
from tokenwire.coordinator.history.conversation import Message
from tokenwire.coordinator.parsing.message import MessageDelta, ParsedMessage, ParserFailed, ToolCallDelta
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, WorkerLost

Kind = Literal["reasoning", "text", "tool_call"]


@dataclass(slots=True)
class Part:
    """One part of a message, complete or growing."""

    kind: Kind
    index: int
    """Its place in the message."""
    call_id: str = ""
    name: str = ""
    texts: list[str] = field(default_factory=list)
    logprobs: list[ScoredPosition] = field(default_factory=list)
    last: bool = False
    """Whether it is the last one of a message that has ended."""

    @property
    def text(self) -> str:
        """Text, reasoning, or a call's arguments."""
        return "".join(self.texts)


def whole_parts(message: ParsedMessage, logprobs: list[ScoredPosition] | None = None) -> list[Part]:
    """Return the parts of a whole message; one without any has an empty text, as clients expect one.

    Blanks beside tool calls are no text: models only set their calls apart with them.
    """
    parts = [Part("reasoning", 0, texts=[message.reasoning])] if message.reasoning else []
    content = message.content or ""
    if content.strip() or (not message.tool_calls and (content or not parts)):
        parts.append(Part("text", len(parts), texts=[content], logprobs=logprobs or []))
    for call in message.tool_calls:
        parts.append(Part("tool_call", len(parts), call.id, call.name, [call.arguments]))
    parts[-1].last = True
    return parts


def aborted(reason: str) -> TokenwireError | None:
    """Return an error for a reply that a stopping worker broke off: these APIs have no word for it."""
    if reason != "abort":
        return None
    return WorkerLost("The worker was stopped before the reply was complete.", retry_after_s=1)


class PartRenderer(Protocol):
    """Renders a stream's events in the shape of one route, each complete."""

    def opening(self, usage: Usage) -> str:
        """Render what comes before the first part; the usage knows the prompt only."""

    def opened(self, part: Part) -> str:
        """Render the beginning of a part."""

    def gained(self, part: Part, text: str, logprobs: list[ScoredPosition]) -> str:
        """Render what the open part gained."""

    def closed(self, part: Part, finish: Finish | None) -> str:
        """Render the end of a part; the finish is there for a message's last one."""

    def closing(self, parts: list[Part], finish: Finish, usage: Usage) -> str:
        """Render what comes after the last part."""

    def error(self, error: TokenwireError, parts: list[Part]) -> str:
        """Render an error in mid-stream."""

    def returned(self, parts: list[Part]) -> Sequence[Message]:
        """Return the chat messages that parts become when a client sends them back."""


class PartStream:
    """The ChunkEncoder of a route whose events follow the parts of one message, one part open at a time."""

    ending = b""

    def __init__(self, call: ChatCall, renderer: PartRenderer) -> None:
        self._call = call
        self._parser = None if call.plan is None else call.parser()
        self.takes_single_steps = self._parser is not None
        # Parsers see every token, also those that have no text.
        self.shows_empty_deltas = self._parser is not None or call.body.wanted_logprobs is not None
        self._renderer = renderer
        self._parts: list[Part] = []
        self._open: Part | None = None
        self._calls: dict[int, Part] = {}
        self._held = ""
        """Text whose time has not come."""
        self._token_ids: list[int] | None = [] if call.counts_reasoning and self._parser is not None else None
        self._prefill = Usage(call.prepared.prompt_tokens)
        self._finish = Finish("abort")

    def prefilled(self, index: int, prefill: Prefill) -> None:
        """Note how much of the prompt was cached."""
        self._prefill.cached_tokens = prefill.cached_tokens

    def opening(self) -> bytes:
        """Render what comes before the first delta."""
        return self._renderer.opening(self._prefill).encode()

    def delta(
        self,
        index: int,
        text: str,
        token_ids: list[int],
        finish: Finish | None,
        logprobs: list[ScoredPosition] | None = None,
    ) -> bytes:
        """Render what the message gained."""
        if self._token_ids is not None:
            self._token_ids += token_ids
        if self._parser is None:
            events = self._gain("text", text, logprobs or []) if text or logprobs else ""
        else:
            delta = self._parser.delta(text, token_ids, finish is not None)
            events = "" if delta is None else "".join(self._take(delta))
        if finish is not None:
            self._finish = finish
            events += self._end()
            self._call.keep(0, self._renderer.returned(self._parts))
        return events.encode()

    def closing(self, usage: Usage) -> bytes:
        """Render what comes after the last part."""
        error = aborted(self._finish.reason)
        if error is not None:
            return self.error(error)
        usage.cached_tokens = self._prefill.cached_tokens
        if self._token_ids is not None and self._parser is not None:
            usage.reasoning_tokens = self._parser.reasoning_tokens(self._token_ids)
        return self._renderer.closing(self._parts, self._finish, usage).encode()

    def error(self, error: TokenwireError) -> bytes:
        """Render an error in mid-stream."""
        return self._renderer.error(error, self._parts).encode()

    def _take(self, delta: MessageDelta) -> Iterator[str]:
        if delta.reasoning:
            yield self._gain("reasoning", delta.reasoning)
        if delta.content:
            yield self._take_text(delta.content)
        for call in delta.tool_calls:
            yield self._take_call(call)

    def _take_text(self, text: str) -> str:
        """Show text, but not within a call, nor blanks beside one."""
        part = self._open
        if part is not None and part.kind == "text":
            return self._gain("text", text)
        self._held += text
        if (part is not None and part.kind == "tool_call") or not self._held.strip():
            return ""
        return self._gain("text", self._take_held())

    def _take_call(self, call: ToolCallDelta) -> str:
        part, events = self._calls.get(call.index), ""
        if part is None:
            events = self._close()
            part = self._calls[call.index] = Part("tool_call", len(self._parts), call.id or "", call.name or "")
            events += self._begin(part)
        if not call.arguments:
            return events
        if part is not self._open:
            raise ParserFailed("The tool call parser went back to a call that had ended.")
        part.texts.append(call.arguments)
        return events + self._renderer.gained(part, call.arguments, [])

    def _gain(self, kind: Kind, text: str, logprobs: list[ScoredPosition] | None = None) -> str:
        part, events = self._open, ""
        if part is None or part.kind != kind:
            events = self._close()
            part = Part(kind, len(self._parts))
            events += self._begin(part)
        part.texts.append(text)
        scored = logprobs or []
        part.logprobs += scored
        return events + self._renderer.gained(part, text, scored)

    def _begin(self, part: Part) -> str:
        self._parts.append(part)
        self._open = part
        return self._renderer.opened(part)

    def _close(self, finish: Finish | None = None) -> str:
        """End the open part; then comes the text that was held back for it."""
        part, self._open = self._open, None
        held = self._take_held()
        if part is None:
            return ""
        if not held.strip():
            part.last = finish is not None
            return self._renderer.closed(part, finish)
        return self._renderer.closed(part, None) + self._gain("text", held) + self._close(finish)

    def _end(self) -> str:
        if self._parts and (self._calls or not self._held):
            return self._close(self._finish)
        held = self._take_held()
        return (self._gain("text", held) if held else self._begin(Part("text", 0))) + self._close(self._finish)

    def _take_held(self) -> str:
        held, self._held = self._held, ""
        return held
