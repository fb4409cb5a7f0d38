"""Reading a session takes a few times what is stored of it."""

import tracemalloc
from typing import Any

import pytest

from tests.coordinator.api.trajectories.test_sessions import ACME
from tests.coordinator.trajectories.turns import assistant_message, said_by_user, sampled_choice, turn_of
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.trajectories.sessions import READING_FACTOR, RecordedSessions
from tokenwire.coordinator.api.trajectories.shapes import node_object, trace_object
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.trajectories.events import RecordedTurn
from tokenwire.coordinator.trajectories.graph import GraphNode, SessionGraph
from tokenwire.coordinator.trajectories.open_store import open_recorder
from tokenwire.coordinator.trajectories.settings import TrajectorySettings

STORED_BYTES = 4 * 2**20


def turn_of_ids(number: int, base: dict[str, Any]) -> RecordedTurn:
    """Return a turn with a long prompt."""
    return turn_of([100_000] * 14_000, sampled_choice(f"{number:016x}", [5000] * 1000), **base)


def turn_of_agent(number: int, base: dict[str, Any]) -> RecordedTurn:
    """Return a turn with a tool's result and some hundred words."""
    reply = assistant_message("word " * 250)
    messages = [said_by_user("tool result " * 150), reply]
    choice = sampled_choice(f"{number:016x}", [5000] * 250, message=reply)
    if base:
        base |= {"message_base": base["base"], "message_start": 2 * (number % 16), "same_tools": True}
    return turn_of([100_000] * 500, choice, messages=messages, **base)


def trace_of(node: GraphNode) -> dict[str, Any]:
    """Return a node as a trace."""
    return trace_object("s", node)


@pytest.mark.parametrize("turn_made", [turn_of_ids, turn_of_agent])
@pytest.mark.parametrize("shape", [node_object, trace_of])
async def test_reading_a_session_takes_a_few_times_what_is_stored(turn_made: Any, shape: Any) -> None:
    """With what is made of it, which may have up to twice as many bytes."""
    recorder = open_recorder(TrajectorySettings(enabled=True))
    assert recorder is not None
    number, key = 0, ("acme", "s")
    while await recorder.store.size_of(key) < STORED_BYTES:
        recorder.append(key, "acme", turn_made(number, {"base": f"{number - 1:016x}"} if number % 16 else {}))
        number += 1

    def encode(graph: SessionGraph) -> bytes:
        assert len(graph.nodes) == number
        made = 0
        pieces = []
        for node in graph.nodes.values():
            pieces.append(json_bytes(shape(node)))
            made += len(pieces[-1])
            if made > 2 * STORED_BYTES:
                break
        return b",".join(pieces)

    tracemalloc.start()
    try:
        await RecordedSessions(recorder).encoded(ACME, "s", BodyMemory(BodyBudget()), encode)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < READING_FACTOR * STORED_BYTES
