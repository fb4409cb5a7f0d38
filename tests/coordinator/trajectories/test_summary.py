"""The summary of a session is that of its graph, read without what was sampled."""

from array import array
from typing import Any

import pytest

from tests.coordinator.trajectories.turns import sampled_choice, turn_of
from tokenwire.coordinator.trajectories.counts import NodeCount
from tokenwire.coordinator.trajectories.events import (
    MessageParsed,
    RewardGiven,
    SessionEvent,
    SessionOpened,
    pack_event,
    unpack_event,
)
from tokenwire.coordinator.trajectories.graph import build_graph
from tokenwire.coordinator.trajectories.summary import summary_of

EVENTS: dict[str, list[SessionEvent]] = {
    "none": [],
    "metadata": [SessionOpened(7.0, {"task": {"a": [1]}}), SessionOpened(8.0, {"seed": 2})],
    "turns": [
        turn_of([1], sampled_choice("a", [2, 3]), sampled_choice("b", [4], logprobs=None), started=5.0),
        turn_of([9], sampled_choice("c", [4]), base="a", prompt_ids=array("I", [9]), started=6.0),
    ],
    "lost": [
        turn_of([1], sampled_choice("b", [2]), sampled_choice("c", [2]), base="gone", started=3.0),
        turn_of([1], sampled_choice("d", [2]), message_base="b", message_start=1, messages=[], started=4.0),
        turn_of([1], sampled_choice("e", [2]), started=5.0),
    ],
    "counted": [
        turn_of([1], sampled_choice("a", [2]), sampled_choice("b", [3]), started=1.0, run="one", earlier=4),
        turn_of([1], sampled_choice("c", [2]), base="gone", started=1.0, run="two"),
    ],
    "rewards": [
        turn_of([1], sampled_choice("a", [2]), started=5.0),
        RewardGiven(6.0, "reward", 0.5),
        RewardGiven(6.0, "reward", 1.0),
        RewardGiven(6.0, "style", 0.25, "a"),
        MessageParsed("a", {"role": "assistant", "content": "é\ud800"}),
    ],
}


CORRUPT = [None, b"", b"{}\n", b'{"kind":"new"}\n', b"\xff\n", pack_event(EVENTS["turns"][0])[:-1]]


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("corrupt", CORRUPT)
def test_a_summary_is_that_of_the_graph(name: str, corrupt: bytes | None) -> None:
    """Events that are corrupt or cut off count for neither."""
    packed = [pack_event(event) for event in EVENTS[name]]
    if corrupt is not None:
        packed.insert(1, corrupt)
    recorded = NodeCount("two", 3)
    graph = build_graph([each for each in map(unpack_event, packed) if each is not None], recorded)
    summary = summary_of(packed, recorded)

    assert summary.nodes == set(graph.nodes)
    facts: tuple[Any, ...] = (graph.rewards, graph.metadata, graph.created_at, graph.lost)
    assert (summary.rewards, summary.metadata, summary.created_at, summary.lost) == facts
