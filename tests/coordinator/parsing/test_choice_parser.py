"""How a parser's output is returned to a client."""

import gc
import itertools
import math
import tracemalloc
from collections.abc import Sequence

import pytest

from tests.clock import Clock
from tests.coordinator.parsing.fakes import FIRST, SECOND, ScriptedRawParser
from tokenwire.coordinator.parsing.batching import ParserBudget
from tokenwire.coordinator.parsing.choice_parser import ChoiceParser
from tokenwire.coordinator.parsing.message import (
    MOST_APART,
    MOST_INLINE,
    MessageDelta,
    ParsedMessage,
    ParserFailed,
    RawMessage,
    ToolCallDelta,
)
from tokenwire.coordinator.parsing.rules import MessageRules, ParsedToolCall

CALLS = (ParsedToolCall("1", "a", "{}"), ParsedToolCall("2", "b", "{}"))
AUTO = MessageRules("auto", parses_tools=True)
UNBATCHED = ParserBudget(per_token_s=math.inf)
"""Calls the parser for each delta, however busy the machine is."""


class ForgetfulRawParser(ScriptedRawParser):
    """Does not record its calls."""

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        """Return the text."""
        return MessageDelta(text)


def parser(raw: ScriptedRawParser, rules: MessageRules = AUTO) -> ChoiceParser:
    """Return a parser with a name."""
    return ChoiceParser(lambda: raw, rules, "tool call parser hermes", budget=UNBATCHED)


def test_streamed_calls_end_with_tool_calls() -> None:
    """Where the model stopped by itself."""
    choice = parser(ScriptedRawParser(MessageDelta(tool_calls=(FIRST,))))
    assert choice.finish_reason("stop") == "stop"
    choice.delta("x", [1], False)
    assert choice.finish_reason("stop") == "tool_calls"
    assert choice.finish_reason("length") == "length"


def test_without_parallel_calls_only_the_first_is_returned() -> None:
    """Later ones are no deltas at all."""
    rules = MessageRules("auto", parses_tools=True, parallel_tool_calls=False)
    choice = parser(
        ScriptedRawParser(MessageDelta(tool_calls=(FIRST, SECOND)), MessageDelta(tool_calls=(SECOND,))), rules
    )
    assert choice.delta("x", [1], False) == MessageDelta(tool_calls=(FIRST,))
    assert choice.delta("x", [1], False) is None


def test_hidden_reasoning_is_not_returned() -> None:
    """Neither streamed nor in full responses; other parts of the delta are."""
    rules = MessageRules(include_reasoning=False)
    raw = ScriptedRawParser(MessageDelta(reasoning="r"), MessageDelta(content="c", reasoning="r"))
    choice = parser(raw, rules)
    assert choice.delta("x", [1], False) is None
    assert choice.delta("x", [1], False) == MessageDelta(content="c")
    assert parser(ScriptedRawParser(), rules).full("c", [1], "stop").reasoning is None


def test_a_full_message_has_its_parts() -> None:
    """With the finish reason of its rules."""
    raw = ScriptedRawParser(MessageDelta("text", "because"), calls=CALLS)
    message = parser(raw).full("text", [1], "stop")
    assert message == ParsedMessage("text", "because", CALLS, "tool_calls")


def test_reasoning_tokens_are_the_parsers() -> None:
    """The parser counts them."""
    assert parser(ScriptedRawParser()).reasoning_tokens([1, 2, 3, 4]) == 2


def test_a_long_stream_ends_as_its_whole() -> None:
    """Nothing of what was sent is sent again at the end, though its many deltas are kept as one."""
    count = 3 * MOST_APART
    arguments = [MessageDelta(tool_calls=(ToolCallDelta(0, arguments="1"),))] * count
    deltas = [MessageDelta(reasoning="because"), *[MessageDelta("t")] * count, MessageDelta(tool_calls=(FIRST,))]
    raw = ScriptedRawParser(*deltas, *arguments, None, calls=(ParsedToolCall("1", "a", "1" * count),))
    choice = parser(raw)

    sent = [choice.delta("t", [1], False) for _ in range(2 * count + 2)]

    assert sent == [*deltas, *arguments]
    assert choice.delta("", [1], True) == MessageDelta("t" * (count + 2))  # what the whole text has, and no delta had


def test_a_long_stream_keeps_little_of_a_token() -> None:
    """Its texts, ids and deltas each by themselves would take 200 bytes."""
    choice, count = parser(ForgetfulRawParser()), 20_000
    tracemalloc.start()
    for number in range(count):
        choice.delta(f" w{number}", [1000 + number], False)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert taken < count * 40


def test_a_failing_parser_is_named() -> None:
    """Whatever it raises becomes one error."""
    with pytest.raises(ParserFailed, match=r"The tool call parser hermes failed .*IndexError: list") as streamed:
        parser(ScriptedRawParser(IndexError("list"))).delta("x", [1], False)
    assert isinstance(streamed.value.__cause__, IndexError)
    with pytest.raises(ParserFailed, match="KeyError"):
        parser(ScriptedRawParser()).full("", [], "stop")
    with pytest.raises(ParserFailed, match="KeyError"):
        parser(ScriptedRawParser()).reasoning_tokens([])


def test_unpaired_surrogates_are_escaped() -> None:
    """Parsers resolve a model's escapes of them, which no response can contain; full and streamed are equal."""
    broken, shown = '{"x": "\ud800ü"}', r'{"x": "\ud800ü"}'
    delta = MessageDelta(None, "because", (ToolCallDelta(0, "1", "a", broken),))
    raw = ScriptedRawParser(delta, calls=(ParsedToolCall("1", "a", broken),))
    full = parser(raw).full("text", [1], "stop")
    streamed = parser(ScriptedRawParser(delta)).delta("x", [1], False)

    assert [call.arguments for call in full.tool_calls] == [shown]
    assert streamed is not None
    assert [call.arguments for call in streamed.tool_calls] == [shown]


class TwoMinds(ScriptedRawParser):
    """Streams a call in parts, and finds another one in the whole text."""

    def __init__(self, arguments: str, whole: str) -> None:
        super().__init__(MessageDelta(tool_calls=(ToolCallDelta(0, "1", "a", arguments),)), None)
        self._calls = (ParsedToolCall("1", "a", whole),)

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        return None, None, self._calls


@pytest.mark.parametrize(("whole", "kept", "count"), [('{"x": 1}', '{"x": 1}', 0), ('{"y": 1}', '{"x', 2)])
def test_a_reply_is_the_same_streamed_or_not(whole: str, kept: str, count: int) -> None:
    """A stream is completed by what the whole text says; what contradicts it is not used, and counted."""
    counted: list[None] = []

    def choice() -> ChoiceParser:
        return ChoiceParser(lambda: TwoMinds('{"x', whole), AUTO, "", disagreed=lambda: counted.append(None))

    stream = choice()
    deltas = [stream.delta("x", [1], False), stream.delta("y", [2], True)]
    assert "".join(call.arguments or "" for delta in deltas if delta for call in delta.tool_calls) == kept
    message = choice().full("xy", [1, 2], "length", ["x", "y"])
    assert [call.arguments for call in message.tool_calls] == [kept]
    assert message.finish_reason == ("length" if count else "tool_calls")
    assert len(counted) == count


class LosesAlone(ScriptedRawParser):
    """Loses a token that it gets by itself, and finds something else in the whole text."""

    def feed(self, text: str, token_ids: list[int], finished: bool) -> MessageDelta | None:
        return None if text == "b" else MessageDelta(text)

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        return None, "something else", ()


def test_a_stream_ends_with_what_a_batched_one_had_not_lost() -> None:
    """As a reply that is not streamed has it, of which no token comes by itself."""
    stream, whole = parser(LosesAlone()), ChoiceParser(LosesAlone, AUTO, "")
    deltas = [stream.delta(text, [1], not text) for text in ("a", "c", "b", "")]

    assert "".join(delta.content or "" for delta in deltas if delta) == "acb"
    assert whole.full("acb", [1] * 4, "length", ["a", "c", "b", ""]).content == "acb"


def test_a_whole_output_is_fed_in_few_calls() -> None:
    """However cheap they are: nobody waits for its parts, and other requests wait for it."""
    made: list[ScriptedRawParser] = []

    def new_parser() -> ScriptedRawParser:
        made.append(ScriptedRawParser())
        return made[-1]

    ChoiceParser(new_parser, AUTO, "").full("x" * 1000, [1] * 1000, "stop", ["x"] * 1000)
    (fed,) = [each.texts for each in made if each.fed]
    assert "".join(fed) == "x" * 1000
    assert len(fed) == 3  # the first and the last token are passed alone


class WatchedParser(ScriptedRawParser):
    """Knows whether garbage was collected while it parsed whole outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.collects: list[bool] = []

    def parse(self, text: str, token_ids: Sequence[int]) -> RawMessage:
        """Parse, and look."""
        self.collects.append(gc.isenabled())
        return super().parse(text, token_ids)


def test_nothing_is_collected_while_a_whole_output_is_parsed() -> None:
    """Objects of each of its characters would be scanned again and again, while all threads stand still."""
    raw = WatchedParser()
    parser(raw).delta("a", [1], True)
    parser(raw).full("a", [1], "stop")

    assert raw.collects == [False, False]
    assert gc.isenabled()


def test_a_delta_takes_long_with_which_many_tokens_are_parsed() -> None:
    """Those that waited for it count, and at the end all of the reply, which is parsed again."""
    wall = Clock(0.0)
    budget = ParserBudget(0.0, 0.0, wait_s=2.0, cpu_clock=itertools.count().__next__, wall_clock=wall)
    choice = ChoiceParser(ScriptedRawParser, AUTO, "tool call parser hermes", budget=budget)
    assert choice.takes_long("x", [1] * (MOST_INLINE + 1), False)
    choice.delta("x", [1], False)
    choice.delta("x", [1] * (MOST_INLINE - 1), False)

    assert not choice.takes_long("x", [1, 1], False)  # it waits, too
    assert not choice.takes_long("x", [], True)
    assert choice.takes_long("x", [1], True)
    wall.now = 2.0
    assert not choice.takes_long("x", [1], False)
    assert choice.takes_long("x", [1, 1], False)
