"""The page of compatibility shows the committed results."""

import json

from tests.compat.environments import MINORS, ROOT
from tests.compat.minor import told_apart
from tests.compat.page import tables
from tests.conformance.parity.compare import Difference
from tests.conformance.parity.request import Reply, Request
from tests.conformance.parity.run import ParityOutcome

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "compat.json").read_text())


def test_the_page_shows_the_committed_results() -> None:
    """All tables, word for word."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()

    assert f"<!-- compat -->\n{tables(RESULTS)}<!-- end -->\n" in page


def test_every_minor_was_checked() -> None:
    """Its worker is announced as running with all of them."""
    assert sorted(RESULTS["minors"]) == sorted(MINORS)
    assert {name: each["internals"]["missing"] for name, each in RESULTS["minors"].items()} == {
        minor: [] for minor in MINORS
    }


def test_a_difference_of_a_minor_is_told_from_others() -> None:
    """Each request counts once for a reason; what nobody explained is listed with the request's name."""
    request, reply = Request("/v1/chat/completions", {}, "one"), Reply(200, "application/json", "{}")
    known = Difference("body.usage.completion_tokens_details", None, "(absent)")
    offsets = [Difference(f"stream.choices.0.logprobs.text_offset[{at}]", at, 0) for at in (1, 2)]
    other = Difference("body.choices.0.text", "a", "b")
    outcomes = [ParityOutcome(request, reply, reply, [known, *offsets]), ParityOutcome(request, reply, reply, [other])]

    of_the_minor, unexplained = told_apart(outcomes, "0.27")

    assert list(of_the_minor.values()) == [1, 1]
    assert unexplained == [f"one: {other}"]
    assert told_apart(outcomes, "0.31")[1] == [f"one: {known}", f"one: {other}"]
    assert told_apart(outcomes, "0.32") == ({}, [f"one: {each}" for each in (known, *offsets, other)])
