"""Parses the message of one choice: batches its deltas, applies the request's rules, and names a parser that fails."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from tokenwire.coordinator.parsing.batching import BatchingFeed, ParserBudget
from tokenwire.coordinator.parsing.message import MessageDelta, ParsedMessage, ParserFailed, RawParser, ToolCallDelta
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall

log = logging.getLogger(__name__)

T = TypeVar("T")
AnyCall = TypeVar("AnyCall", ParsedToolCall, ToolCallDelta)
Text = TypeVar("Text", str, str | None)


class ChoiceParser:
    """The MessageParser around a RawParser."""

    __slots__ = ("_feed", "_name", "_parser", "_rules", "_tools_streamed")

    def __init__(
        self,
        parser: RawParser,
        rules: MessageRules,
        name: str,
        marks: Collection[int] = (),
        splits_text: bool = True,
        budget: ParserBudget | None = None,
    ) -> None:
        """`name` is the operator's name of the parser; `marks` and `splits_text` are BatchingFeed's."""
        self._parser = parser
        self._feed = BatchingFeed(parser, marks, splits_text, budget or ParserBudget()).feed
        self._rules = rules
        self._name = name
        self._tools_streamed = False

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Add the output of one step; return the delta to send. Raises ParserFailed."""
        try:
            delta = self._feed(text, token_ids, finished)
        except Exception as error:
            raise self._failed(error) from error
        if delta is None:
            return None
        return self._shown(delta)

    def finish_reason(self, reason: str) -> str:
        """Return the finish reason of a stream, given the engine's."""
        return self._rules.streamed_finish(reason, self._tools_streamed)

    def full(self, text: str, token_ids: Sequence[int], reason: str) -> ParsedMessage:
        """Parse a complete output. Raises ParserFailed."""
        rules = self._rules
        reasoning, content, calls = self._guard(lambda: self._parser.parse(text, token_ids))
        return ParsedMessage(
            content=rules.full_content(content),
            reasoning=reasoning if rules.include_reasoning else None,
            tool_calls=tuple(map(_encodable, rules.full_calls(calls))),
            finish_reason=rules.full_finish(reason, calls),
        )

    def reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of reasoning tokens. Raises ParserFailed."""
        return self._guard(lambda: self._parser.count_reasoning(token_ids))

    def _shown(self, delta: MessageDelta) -> MessageDelta | None:
        rules = self._rules
        calls = delta.tool_calls
        if calls:
            self._tools_streamed = True
            if not rules.parallel_tool_calls:
                calls = tuple(call for call in calls if rules.shows_call(call.index))
            calls = tuple(map(_encodable, calls))
        reasoning = delta.reasoning if rules.include_reasoning else None
        if calls == delta.tool_calls and reasoning is delta.reasoning:
            return delta
        if not calls and not reasoning and not delta.content:
            return None
        return MessageDelta(delta.content, reasoning, calls)

    def _guard(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ParserFailed:
        log.warning("the %s failed", self._name, exc_info=error)
        return ParserFailed(f"The {self._name} failed to parse the model's output: {type(error).__name__}: {error}")


def _encodable(call: AnyCall) -> AnyCall:
    """Return a call with unpaired surrogates escaped again, as the model wrote them.

    Parsers that read JSON and write it resolve the escapes, and no response can contain the surrogates.
    """
    name, arguments = _escaped(call.name), _escaped(call.arguments)
    if name == call.name and arguments == call.arguments:
        return call
    return replace(call, name=name, arguments=arguments)


def _escaped(text: Text) -> Text:
    return text and text.encode(errors="backslashreplace").decode()
