"""What a reply says if its stream and its complete parse differ."""

import pytest

from tokenwire.coordinator.parsing.agreement import agreed, joined, unsent
from tokenwire.coordinator.parsing.message import MessageDelta, RawMessage, ToolCallDelta
from tokenwire.coordinator.parsing.rules import ParsedToolCall


def raw_message(content: str | None = None, *calls: str, reasoning: str | None = None) -> RawMessage:
    """Return a message whose calls have these arguments."""
    return reasoning, content, tuple(ParsedToolCall(str(index), "f", each) for index, each in enumerate(calls))


@pytest.mark.parametrize(
    ("sent", "whole"),
    [
        (raw_message("Sure.\n", '{"a":1}'), raw_message("Sure.", '{"a": 1}')),
        (raw_message("Su"), raw_message("Sure.", "{}")),
        (raw_message(None, '{"a'), raw_message(None, '{"a": 1}', "{}")),
        (raw_message(None, ""), raw_message(None, "{}")),
        (raw_message(reasoning="So"), raw_message(reasoning="So.")),
    ],
)
def test_a_complete_parse_that_continues_the_stream_is_the_reply(sent: RawMessage, whole: RawMessage) -> None:
    """And the stream sends what is missing."""
    assert agreed(sent, whole) is whole
    rest = unsent(sent, whole)
    both = joined([_delta(sent), *([rest] if rest else [])])
    assert agreed(both, whole) is whole
    assert unsent(both, whole) is None


@pytest.mark.parametrize(
    ("sent", "whole"),
    [
        (raw_message(None, '{"a": "x"}'), raw_message(None, '{"a": "y"}')),
        (raw_message(None, '{"a": "x'), raw_message('<call>{"a": "x')),
        (raw_message(None, "{}", "{}"), raw_message(None, "{}")),
        (raw_message(reasoning="So"), raw_message("So")),
        (raw_message("Sure."), raw_message("Sure.", reasoning="So")),
    ],
)
def test_what_a_stream_has_sent_stands_against_its_complete_parse(sent: RawMessage, whole: RawMessage) -> None:
    """Calls and reasoning cannot be taken back."""
    assert agreed(sent, whole) is sent
    assert unsent(sent, sent) is None


def test_text_that_only_the_stream_has_is_kept_beside_the_calls() -> None:
    """Such as text after a call."""
    sent, whole = raw_message("Sure. Done.", '{"a'), raw_message("Sure.", '{"a": 1}')
    assert agreed(sent, whole) == raw_message("Sure. Done.", '{"a": 1}')
    assert unsent(sent, agreed(sent, whole)) == MessageDelta(tool_calls=(ToolCallDelta(0, arguments='": 1}'),))


def test_hidden_reasoning_does_not_count() -> None:
    """A stream never has it."""
    whole = raw_message("Sure.", reasoning="So")
    assert agreed(raw_message("Sure."), whole, reasons=False) is whole
    assert unsent(raw_message("Sure."), whole, reasons=False) is None


def _delta(sent: RawMessage) -> MessageDelta:
    reasoning, content, calls = sent
    deltas = [ToolCallDelta(index, call.id, call.name, call.arguments) for index, call in enumerate(calls)]
    return MessageDelta(content, reasoning, tuple(deltas))
