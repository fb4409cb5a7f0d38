"""A reply has the same calls, content and reasoning in any chunking, streamed or not, with each of vLLM's parsers."""

import random
from collections.abc import Sequence

import pytest

from tests.coordinator.parsing import chunkings, parsers_page, replies
from tests.coordinator.parsing.chunkings import Subject, name_of, subject

pytestmark = [pytest.mark.ci, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

DRAWS, LONG_DRAWS = 8, 400
BROKEN = [
    ("tool call parser `plamo3`", 308),
    ("reasoning parser `olmo3`", 372),
    ("tool call parser `deepseek_v4` with reasoning parser `deepseek_v4`", 302),
]
"""Parsers and draws whose reply says something else by its chunks: a part of its markup is cut or repeated."""


def check_chunkings(subject: Subject, text: str, pick: random.Random, chunks: int) -> None:
    """Hold a whole reply against streams of drawn chunkings."""
    ids = subject.ids(text)
    whole = subject.whole(ids)
    for _ in range(chunks):
        frames = chunkings.chunking(len(ids), pick)
        streamed = subject.streamed(ids, frames, chunkings.budgets(pick))
        assert chunkings.same(streamed, whole), (text, frames, streamed, whole)


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Return all parsers that are tested."""
    return [name_of(settings) for settings in chunkings.all_settings()]


def test_replies_do_not_depend_on_chunking(names: list[str]) -> None:
    """Well-formed ones and broken ones."""
    assert len(names) > 80
    for name in names:
        pick = random.Random(name)
        for text in replies.replies(subject(name).markup).values():
            check_chunkings(subject(name), text, pick, 2)


def test_replies_with_a_forced_call_do_not_depend_on_chunking(names: list[str]) -> None:
    """Whether a call is required or a tool is named; most are cut."""
    for name in names:
        if not name.startswith("tool call parser"):
            continue
        for choice in ("required", "get_weather"):
            forced = subject(name, choice)
            pick = random.Random(f"{name} {choice}")
            for text in forced.forced_replies():
                check_chunkings(forced, text, pick, 1)


def _check_drawn(names: list[str], draws: int, known: Sequence[tuple[str, int]] = ()) -> None:
    failed: dict[tuple[str, int], str] = {}
    for name in names:
        for draw in range(draws):
            pick = random.Random(f"{name} {draw}")
            try:
                check_chunkings(subject(name), replies.drawn_reply(subject(name).markup, pick), pick, 2)
            except AssertionError as error:
                failed[name, draw] = str(error)
    assert {each: error for each, error in failed.items() if each not in known} == {}
    assert failed.keys() == set(known), "documented, and no longer so"


def test_drawn_replies_do_not_depend_on_chunking(names: list[str]) -> None:
    """Of random parts, some cut."""
    _check_drawn(names, DRAWS)


def test_the_page_lists_the_parsers_that_contradict_themselves(names: list[str]) -> None:
    """Each with a case that vLLM's parser still parses so, and whether its calls are held."""
    documented = parsers_page.listed_parsers()
    for name in names:
        each = subject(name)
        listed = documented.pop(name.capitalize(), None)
        if listed is None:
            assert parsers_page.contradicted(each) == [], name
        else:
            held, found, case = listed
            assert (held, found) == (each.held, parsers_page.contradicted(each))
            reply = parsers_page.case_reply(case)
            assert parsers_page.contradicts(each, reply)
            assert case == parsers_page.case_of(each, reply)
    assert documented == {}


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_many_drawn_replies_do_not_depend_on_chunking(names: list[str]) -> None:
    """Apart from three with broken markup, whose parsers are documented."""
    _check_drawn(names, LONG_DRAWS, BROKEN)
