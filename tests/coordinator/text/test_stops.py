"""Stop strings: which match wins, and that only text that may become one is held back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coordinator.text.reference import find_stop, longest_open_prefix
from tokenwire.coordinator.text.stops import StopAutomaton, StopScanner, compile_stops

# Few letters, so that stop strings overlap, contain and end each other.
TEXTS = st.text(alphabet="ab\n🙂", max_size=6)
STOPS = st.lists(st.text(alphabet="ab\n🙂", min_size=1, max_size=5), min_size=1, max_size=4).map(tuple)


def scan(stops: tuple[str, ...], *pieces: str, include: bool = False) -> tuple[list[str], str | None]:
    """Push pieces; return the text of each, with the text held at the end, and the match."""
    scanner = StopScanner(StopAutomaton(stops), include)
    out = []
    for piece in pieces:
        text, matched = scanner.push(piece, True)
        out.append(text)
        if matched is not None:
            return out, matched
    return [*out, scanner.flush()], None


def test_the_match_that_completes_first_wins() -> None:
    """A stop string inside another one ends the text although the other starts earlier."""
    assert scan(("abcd", "bc"), "xabcd") == (["xa"], "bc")


def test_ties_go_to_the_first_in_the_list() -> None:
    """Of two stop strings that complete at the same character, the first in the list wins."""
    assert scan(("bc", "abc"), "xabc") == (["xa"], "bc")
    assert scan(("abc", "bc"), "xabc") == (["x"], "abc")


def test_a_stop_string_may_be_listed_twice() -> None:
    """A repeated stop string counts once, at its first position."""
    assert scan(("bc", "abc", "bc"), "xabc") == (["xa"], "bc")


def test_only_a_possible_prefix_is_held_back() -> None:
    """Text that is no prefix of a stop string is emitted at once, however long the stop strings are."""
    assert scan(("</answer>",), "fine", " <", "b>", "</ans", "wer!") == (
        ["fine", " ", "<b>", "", "</answer!", ""],
        None,
    )


def test_held_text_is_emitted_at_the_end() -> None:
    """The prefix of a stop string that never completes belongs to the text."""
    assert scan(("###",), "a##") == (["a", "##"], None)


def test_included_stop_strings_hold_nothing_back() -> None:
    """If the stop string belongs to the text, every piece is emitted at once, cut after the match."""
    assert scan(("two th",), " one two", " three", include=True) == ([" one two", " th"], "two th")


def test_regex_characters_are_plain_text() -> None:
    """Special characters of regular expressions are matched literally."""
    for stop in ("]", "^", "-", "\\", "[", ".", "a-z", "&&", "||", "~~"):
        assert scan((stop,), f"x{stop}y") == (["x"], stop)
        assert scan((stop, "^"), "xyz") == (["xyz", ""], None)


def test_an_ignored_match_may_still_hold_text_back() -> None:
    """A match that does not count yet is text, but it may be the prefix of a match that counts."""
    scanner = StopScanner(StopAutomaton(("ab", "abc")), False)
    assert scanner.push("xab", False) == ("x", None)
    assert scanner.push("c!", True) == ("", "abc")


def test_empty_stop_strings_are_rejected() -> None:
    """An empty stop string would end every text before its first character."""
    with pytest.raises(ValueError, match="empty"):
        StopAutomaton(("a", ""))


def test_automata_are_cached_unless_they_are_large() -> None:
    """Requests with the same stop strings share an automaton; long lists are not cached."""
    assert compile_stops(("a", "b")) is compile_stops(("a", "b"))
    assert compile_stops(("x" * 5000,)) is not compile_stops(("x" * 5000,))


def test_long_repetitive_stop_strings_stay_cheap() -> None:
    """Text that repeatedly almost matches a long stop string is scanned in one pass."""
    stop = "a" * 20_000 + "b"
    scanner = StopScanner(StopAutomaton((stop,)), False)
    out = "".join(scanner.push("aaaa", True)[0] for _ in range(20_000))
    assert len(out) == 60_000
    assert scanner.push("b", True) == ("", stop)


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=8), STOPS, st.booleans(), st.integers(0, 8))
def test_scanning_equals_searching(pieces: list[str], stops: tuple[str, ...], include: bool, from_piece: int) -> None:
    """In any pieces, from any piece on, the end equals a plain search, and exactly the open prefix is held back."""
    scanner = StopScanner(StopAutomaton(stops), include)
    beyond = len("".join(pieces[:from_piece]))
    expected = find_stop("".join(pieces), stops, beyond)
    out, read = "", ""
    for index, piece in enumerate(pieces):
        text, matched = scanner.push(piece, index >= from_piece)
        out, read = out + text, read + piece
        if matched is not None:
            assert expected is not None
            end, stop = expected
            assert (out, matched) == (read[: end if include else end - len(stop)], stop)
            return
        assert out == (read if include else read[: len(read) - longest_open_prefix(read, stops)])
    assert expected is None
    assert out + scanner.flush() == read
