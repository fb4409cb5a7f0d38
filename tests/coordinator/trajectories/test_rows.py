"""Rows have each sampled token marked exactly once, at its place."""

import pytest

from tests.coordinator.trajectories.turns import said_by_user, sampled_choice, turn_of
from tokenwire.coordinator.trajectories.events import RewardGiven
from tokenwire.coordinator.trajectories.graph import build_graph
from tokenwire.coordinator.trajectories.rows import By, rows_of

GRAPH = build_graph(
    [
        turn_of([1, 2], sampled_choice("a", [3, 4], spans=[("v1", 0, 1), ("v2", 1, 2)]), adapter="x"),
        turn_of([5], sampled_choice("b", [6], logprobs=None, finish="length"), base="a", adapter="x"),
        turn_of([7, 8], sampled_choice("c", [9]), base="a", messages=[said_by_user("x")], adapter="x"),
        RewardGiven(1.0, "reward", 1.0),
        RewardGiven(1.0, "other", 2.0, "a"),
    ]
)


def test_a_row_for_each_path_marks_shared_tokens_once() -> None:
    """In the first of the rows that have them."""
    first, second = rows_of("s", GRAPH, "path")

    assert (first.nodes, first.prompt_ids, first.completion_ids) == (["a", "b"], [1, 2], [3, 4, 5, 6])
    assert (first.mask, first.versions) == ([1, 1, 0, 1], ["v1", "v2", None, None])
    assert first.logprobs == [-3.0, -4.0, None, None]
    assert (first.finish, first.adapter, first.reward) == ("length", "x", 1.0)
    assert first.node_rewards == {"a": {"other": 2.0}}
    assert (second.nodes, second.completion_ids) == (["a", "c"], [3, 4, 7, 8, 9])
    assert second.mask == [0, 0, 0, 0, 1]


def test_a_row_for_each_node_has_its_whole_prompt() -> None:
    """And nothing of it is marked."""
    rows = [*rows_of("s", GRAPH, "node")]

    assert [(row.prompt_ids, row.completion_ids) for row in rows] == [
        ([1, 2], [3, 4]),
        ([1, 2, 3, 4, 5], [6]),
        ([1, 2, 3, 4, 7, 8], [9]),
    ]
    assert [row.mask for row in rows] == [[1, 1], [1], [1]]


@pytest.mark.parametrize("by", ["path", "node"])
def test_pages_are_parts_of_the_whole(by: By) -> None:
    """Also of what they mark."""
    pages = [row for offset in range(4) for row in rows_of("s", GRAPH, by, offset, 1)]

    assert pages == [*rows_of("s", GRAPH, by)]
