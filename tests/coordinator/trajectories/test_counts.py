"""Readers see how many nodes of a session are missing, whoever dropped them."""

from tokenwire.coordinator.trajectories.counts import FoundNodes, NodeCount, RecordedCounts

KEY = ("acme", "s")


def test_nodes_are_counted_until_the_session_is_deleted() -> None:
    """Of each session."""
    counts = RecordedCounts()
    first, second, other = counts.add(KEY, 2), counts.add(KEY, 1), counts.add(("other", "s"), 1)

    assert (first.nodes, second, other.nodes) == (0, NodeCount(first.run, 2), 0)
    assert counts.find(KEY) == NodeCount(first.run, 3)
    counts.forget(KEY)
    assert counts.find(KEY) is None
    assert counts.add(KEY, 1).nodes == 0


def test_a_count_that_is_forgotten_begins_another_run() -> None:
    """The one of the session that was recorded least recently."""
    counts = RecordedCounts(most=2)
    runs = {name: counts.add(("acme", name), 1).run for name in ("a", "b")}
    counts.add(("acme", "a"), 1)
    counts.add(("acme", "c"), 1)

    assert counts.find(("acme", "a")) == NodeCount(runs["a"], 2)
    assert counts.find(("acme", "b")) is None
    again = counts.add(("acme", "b"), 1)
    assert again.nodes == 0
    assert again.run != runs["b"]


def test_what_was_recorded_and_is_not_found_is_missing() -> None:
    """At the beginning, in between, or left out; and at the end, if the reader's own process recorded it."""
    found = FoundNodes(None)
    found.add("one", 2, 1, left_out=False)
    assert found.missing == 2
    found.add("one", 3, 1, left_out=True)
    assert found.missing == 3
    found.add("two", 0, 2, left_out=False)
    found.add("", 0, 2, left_out=True)
    assert found.missing == 5

    assert FoundNodes(NodeCount("one", 4)).missing == 4
