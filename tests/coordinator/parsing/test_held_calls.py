"""Streams that end before the first call."""

import pytest

from tests.coordinator.parsing.fakes import ScriptedRawParser
from tokenwire.coordinator.parsing.held_calls import HeldCalls, held_from
from tokenwire.coordinator.parsing.rules import MessageRules
from tokenwire.coordinator.parsing.settings import ParserSettings

AUTO = MessageRules("auto", parses_tools=True)


def contents_of(*texts: str, openings: tuple[str, ...] = ("<call>", "[[")) -> list[str | None]:
    """Return the content of each delta."""
    held = HeldCalls(ScriptedRawParser(), ScriptedRawParser(), openings)
    deltas = [held.feed(text, [1], False) for text in texts]
    return [None if delta is None else delta.content for delta in deltas]


@pytest.mark.parametrize(
    ("texts", "contents"),
    [
        (("Sure", "."), ["Sure", "."]),
        (("Sure.<call>x", "y"), ["Sure.", None]),
        (("Sure.<ca", "ll>x", "y"), ["Sure.", None, None]),
        (("a <b", "> c"), ["a <b", "> c"]),
        (("a <", "b> c"), ["a ", "<b> c"]),
        (("a[", "b[", "[x", "y"), ["a", "[b", None, None]),
    ],
)
def test_text_is_streamed_up_to_a_call(texts: tuple[str, ...], contents: list[str | None]) -> None:
    """Only what may begin one is kept."""
    assert contents_of(*texts) == contents


def test_a_parser_whose_calls_may_begin_anywhere_streams_nothing() -> None:
    """All is left to the end."""
    assert contents_of("Sure", ".", openings=("",)) == [None, None]


def test_only_calls_of_the_models_choice_are_held() -> None:
    """Forced ones are JSON by their grammar, of which vLLM needs no markup."""
    settings = ParserSettings("jamba", enable_auto_tool_choice=True)
    assert held_from(settings, AUTO) == ("<tool_calls>",)
    assert held_from(settings, MessageRules("required", parses_tools=True)) is None
    assert held_from(ParserSettings("hermes", enable_auto_tool_choice=True), AUTO) is None


def test_reasoning_is_held_whatever_the_choice() -> None:
    """With some parsers; with others only without the parser of calls that belongs to them."""
    assert held_from(ParserSettings(reasoning_parser="granite"), MessageRules()) == ("",)
    assert held_from(ParserSettings(reasoning_parser="inkling"), MessageRules()) == ("",)
    assert held_from(ParserSettings("inkling", "inkling"), MessageRules()) is None
