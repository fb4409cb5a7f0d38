"""Parses the message of one choice: batches its deltas, applies the request's rules, and names a parser that fails."""

import logging
import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from tokenwire.coordinator.parsing.agreement import agreed, joined, unsent
from tokenwire.coordinator.parsing.batching import BatchingFeed, ParserBudget
from tokenwire.coordinator.parsing.message import (
    MOST_APART,
    MOST_INLINE,
    MessageDelta,
    ParsedMessage,
    ParserFailed,
    RawMessage,
    RawParser,
    ToolCallDelta,
    merge,
    merge_all,
)
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall
from tokenwire.process.gc_tuning import gc_disabled

log = logging.getLogger(__name__)

T = TypeVar("T")
AnyCall = TypeVar("AnyCall", ParsedToolCall, ToolCallDelta)
Text = TypeVar("Text", str, str | None)


_AT_ONCE = ParserBudget(per_token_s=0.0, cheap_s=0.0, wait_s=math.inf)
"""Batches as much as possible: what a parser returns does not depend on it."""


class ChoiceParser:
    """The MessageParser around a RawParser.

    A reply says the same, streamed or not: what its complete parse says, if that continues what a stream has sent by
    then, and otherwise what the stream has sent.
    """

    __slots__ = (
        "_batches",
        "_before",
        "_disagreed",
        "_ids",
        "_lengths",
        "_marks",
        "_name",
        "_new_parser",
        "_parser",
        "_rules",
        "_sent",
        "_splits_text",
        "_texts",
        "_tools_streamed",
        "waiting",
    )

    def __init__(
        self,
        new_parser: Callable[[], RawParser],
        rules: MessageRules,
        name: str,
        marks: frozenset[int] = frozenset(),
        splits_text: bool = True,
        budget: ParserBudget | None = None,
        disagreed: Callable[[], None] = lambda: None,
    ) -> None:
        """`new_parser` makes one for each parse of the output; `marks` and `splits_text` are BatchingFeed's.

        `name` is the operator's name of the parser. `disagreed` is called where its complete parse contradicts a
        stream.
        """
        self._new_parser = new_parser
        self._parser = parser = new_parser()
        self._marks = marks
        self._splits_text = splits_text
        self._batches = BatchingFeed(parser, marks, splits_text, budget or ParserBudget())
        self.waiting = 0
        self._rules = rules
        self._name = name
        self._disagreed = disagreed
        self._tools_streamed = False
        self._texts: list[str] = []
        """Of the last steps."""
        self._before: list[str] = []
        self._lengths = array("I")
        """Joined texts of the steps before, and the length of each step's."""
        self._ids = array("I")
        self._sent: list[MessageDelta] = []

    def takes_long(self, text: str, token_ids: list[int], finished: bool) -> bool:
        """Whether more than MOST_INLINE tokens are parsed with this delta."""
        if finished:
            return len(self._ids) + len(token_ids) > MOST_INLINE
        return self.waiting + len(token_ids) > MOST_INLINE and self._batches.passes(text, token_ids)

    def delta(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Add the output of one step; return the delta to send. Raises ParserFailed."""
        self._texts.append(text)
        if len(self._texts) > MOST_APART:
            self._lengths.extend(map(len, self._texts))
            self._before.append("".join(self._texts))
            self._texts = []
        self._ids.extend(token_ids)
        try:
            delta = self._batches.feed(text, token_ids, finished)
            self.waiting = len(self._batches.waiting)
            if finished:
                delta = self._completed(delta)
        except Exception as error:
            raise self._failed(error) from error
        if delta is None:
            return None
        self._sent.append(delta)
        if len(self._sent) > MOST_APART:
            self._sent = [merge_all(self._sent)]
        return self._shown(delta)

    def finish_reason(self, reason: str) -> str:
        """Return the finish reason of a stream, given the engine's."""
        return self._rules.streamed_finish(reason, self._tools_streamed)

    @gc_disabled()  # vLLM's parser engine makes objects of each character, and frees them
    def full(self, text: str, token_ids: Sequence[int], reason: str, texts: Sequence[str] = ()) -> ParsedMessage:
        """Parse a complete output. Raises ParserFailed."""
        rules = self._rules
        whole = self._guard(lambda: self._parser.parse(text, token_ids))
        message = self._agreed(whole, text, list(token_ids), texts)
        if message is not whole:
            self._disagreed()
        reasoning, content, calls = message
        kept = calls is whole[2]
        return ParsedMessage(
            content=rules.full_content(content),
            reasoning=reasoning if rules.include_reasoning else None,
            tool_calls=tuple(map(_encodable, rules.full_calls(calls))),
            finish_reason=rules.full_finish(reason, calls) if kept else rules.streamed_finish(reason, bool(calls)),
        )

    def reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Return the number of reasoning tokens. Raises ParserFailed."""
        return self._guard(lambda: self._parser.count_reasoning(token_ids))

    @gc_disabled()
    def _completed(self, delta: MessageDelta | None) -> MessageDelta | None:
        """Return the last delta of a stream, with what only a parse of all its text finds."""
        sent = joined(self._sent if delta is None else [*self._sent, delta])
        reasons = self._rules.include_reasoning
        text, ids = "".join([*self._before, *self._texts]), self._ids.tolist()
        whole = self._new_parser().parse(text, ids)
        message = agreed(sent, whole, reasons)
        if message is not whole:
            self._disagreed()
            lengths = [*self._lengths, *map(len, self._texts)]
            texts = [text[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]
            message = agreed(sent, self._agreed(whole, text, ids, texts), reasons)
        return merge(delta, unsent(sent, message, reasons))

    def _agreed(self, whole: RawMessage, text: str, ids: list[int], texts: Sequence[str]) -> RawMessage:
        """Return the message on which a complete parse and a stream agree that is batched as much as may be."""
        reasons = self._rules.include_reasoning
        steps = [(text, ids)]
        if len(texts) == len(ids):
            steps = [(each, [token_id]) for each, token_id in zip(texts, ids, strict=True)]
        try:
            return agreed(self._fed(steps), whole, reasons)
        except Exception:  # a complete parse is better than none
            log.debug("the %s failed to stream an output", self._name, exc_info=True)
            return whole

    def _fed(self, steps: Sequence[tuple[str, list[int]]]) -> RawMessage:
        feed = BatchingFeed(self._new_parser(), self._marks, self._splits_text, _AT_ONCE).feed
        deltas = [feed(text, ids, number == len(steps)) for number, (text, ids) in enumerate(steps, 1)]
        return joined([delta for delta in deltas if delta is not None])

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
