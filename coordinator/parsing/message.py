"""The types and interfaces of parsing: messages, deltas and the parsers that produce them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tokenwire.coordinator.parsing.rules import CheckedToolChoice, MessageRules, ParsedToolCall
from tokenwire.errors import EngineFailed, TokenwireError
from tokenwire.process.value_class import value_class
from tokenwire.v1 import inference_pb2 as pb

MOST_WAITING = 1024
"""Tokens that are parsed at once in the midst of a stream, in some hundredths of a second.

More of them at a time save nothing with parsers that take their time for each character.
"""
MOST_INLINE = 128
"""Tokens that are parsed in the event loop, in some milliseconds: of more, parsers take long enough for a thread."""

MOST_APART = 256
"""Deltas that are kept each by itself, each of which takes 150 bytes. Then they become one."""


class ParserUnusable(TokenwireError):
    """A configured parser cannot be loaded, or not for this model; clients cannot fix it."""


class ParserFailed(EngineFailed):
    """A parser failed on the model's output."""


@value_class
class ToolCallDelta:
    """New parts of one tool call. Its first delta has the id and the name."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    """Characters to append; all together should be JSON."""


@value_class
class MessageDelta:
    """New parts of a message; parts without news are None or empty."""

    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()


@value_class
class ParsedMessage:
    """A complete message, as sent to the client."""

    content: str | None
    reasoning: str | None
    tool_calls: tuple[ParsedToolCall, ...]
    finish_reason: str


RawMessage = tuple[str | None, str | None, tuple[ParsedToolCall, ...]]
"""A complete message as parsed: reasoning, content and tool calls."""


class RawParser(Protocol):
    """A parser of one choice without the request's rules: vLLM's Parser in our types."""

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Add new output; return what it adds to the message, None for nothing yet."""

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        """Parse a complete output."""

    def count_reasoning(self, token_ids: Sequence[int]) -> int:
        """Count the tokens that were reasoning."""


class MessageParser(Protocol):
    """Parses one choice's output into a message, by the rules of its request.

    Call either `delta` for every step and then `finish_reason`, or `full` once. They raise ParserFailed and
    nothing else. Parsing more than MOST_INLINE tokens takes a while: let a thread do it.
    """

    waiting: int
    """Tokens of deltas so far that are parsed with later ones, at the latest when they are MOST_WAITING."""

    def takes_long(self, text: str, token_ids: list[int], finished: bool) -> bool:
        """Whether more than MOST_INLINE tokens are parsed with this delta: with the last one, all of them again.

        Without a finish, never if it makes no more than MOST_INLINE together with those that wait.
        """

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Add the output of one step, token by token if possible; return None if there is nothing to send yet."""

    def finish_reason(self, reason: str) -> str:
        """Return the finish reason of the last chunk, given the engine's, after the last delta."""

    def full(self, text: str, token_ids: Sequence[int], reason: str, texts: Sequence[str] = ()) -> ParsedMessage:
        """Parse a complete output that ended for the engine's reason; `texts` are those of its tokens."""

    def reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of reasoning tokens among all tokens of the choice."""


class ParserPlan(Protocol):
    """One request as prepared by the parsers: its sampling constraints, and parsers of its choices."""

    @property
    def rules(self) -> MessageRules:
        """The request's rules for its messages."""

    @property
    def skip_special_tokens(self) -> bool:
        """Whether the text omits special tokens: parsers may need them, whatever the client requested."""

    @property
    def spaces_between_special_tokens(self) -> bool:
        """The detokenizer's rule of that name."""

    @property
    def structured_outputs(self) -> pb.StructuredOutputs | None:
        """The grammar for generation, in place of the request's tools, structured outputs and response format."""

    @property
    def reasoning_parser_kwargs(self) -> Mapping[str, Any] | None:
        """Arguments of the engine's own reasoning parser, which decides where a grammar begins."""

    @property
    def prompt_token_ids(self) -> Sequence[int] | None:
        """The prompt, if the parsers' format renders it (gpt-oss); None: the chat template renders it."""

    def reasoning_ended(self, prompt_token_ids: Sequence[int]) -> bool | None:
        """Return whether reasoning is over at the end of the prompt; None leaves that to the engine."""

    def parser(self, prompt_token_ids: Sequence[int]) -> MessageParser:
        """Return a parser for one choice."""


class Parsers(Protocol):
    """The parsers of a model's chat requests."""

    @property
    def counts_reasoning(self) -> bool:
        """Whether usage includes the number of reasoning tokens."""

    def plan(self, body: Mapping[str, Any], choice: CheckedToolChoice) -> ParserPlan | None:
        """Check a chat request, as JSON, and return its plan. None: its output is plain content.

        choice: its tool_choice, checked.
        Raises InvalidRequest. Does not change the body. Takes about a millisecond; with gpt-oss, which renders here, as
        long as tokenizing its messages: run it in a thread for long ones.
        """


def merge_all(deltas: Sequence[MessageDelta]) -> MessageDelta:
    """Return the deltas of a stream as one, each tool call joined."""
    parts: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        for call in delta.tool_calls:
            parts.setdefault(call.index, []).append(call)
    content = "".join([delta.content for delta in deltas if delta.content])
    reasoning = "".join([delta.reasoning for delta in deltas if delta.reasoning])
    return MessageDelta(content or None, reasoning or None, tuple(map(_merged_call, parts.values())))


def _merged_call(parts: Sequence[ToolCallDelta]) -> ToolCallDelta:
    name = "".join([part.name for part in parts if part.name])
    arguments = "".join([part.arguments for part in parts if part.arguments])
    return ToolCallDelta(parts[0].index, parts[0].id, name or None, arguments or None)


def merge(one: MessageDelta | None, other: MessageDelta | None) -> MessageDelta | None:
    """Return both deltas as one, joining adjacent deltas of the same tool call."""
    if one is None or other is None:
        return one or other
    calls = list(one.tool_calls)
    for call in other.tool_calls:
        if calls and calls[-1].index == call.index and call.id is None and call.name is None:
            calls[-1] = replace(calls[-1], arguments=_join(calls[-1].arguments, call.arguments))
        else:
            calls.append(call)
    return MessageDelta(_join(one.content, other.content), _join(one.reasoning, other.reasoning), tuple(calls))


def _join(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other
