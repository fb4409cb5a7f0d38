"""Sessions are found, listed, rewarded and deleted by their tenants alone."""

import asyncio

import pytest

from tests.coordinator.trajectories.turns import sampled_choice, turn_of
from tokenwire.coordinator.api.trajectories.sessions import RecordedSessions, page_of_nodes, within_size
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.trajectories.index import SessionIndexes
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore
from tokenwire.errors import InvalidRequest, NotFound, TooLarge

ACME, OTHER = Caller(tenant="acme", share="acme"), Caller(tenant="other", share="other")


def sessions_with_one() -> RecordedSessions:
    """Return the sessions of tenants, one of which has one with three nodes."""
    indexes = SessionIndexes(60.0)
    recorder = TrajectoryRecorder(MemoryTrajectoryStore(2**22, 60.0, indexes.forget), indexes)
    for node in "abc":
        recorder.append(("acme", "s"), "acme", turn_of([1], sampled_choice(node, [2]), started=5.0))
    return RecordedSessions(recorder)


async def test_a_foreign_session_is_not_found() -> None:
    """As one that nobody has; it cannot be rewarded or deleted either."""
    sessions = sessions_with_one()
    assert len((await sessions.find(ACME, "s")).nodes) == 3

    for caller, session_id in ((OTHER, "s"), (ACME, "x")):
        with pytest.raises(NotFound, match=f"There is no session '{session_id}'") as raised:
            await sessions.find(caller, session_id)
        assert raised.value.param == "session_id"
        with pytest.raises(NotFound):
            await sessions.reward(caller, session_id, None, "reward", 1.0)
        with pytest.raises(NotFound):
            await sessions.delete(caller, session_id)
    assert await sessions.listed(OTHER, None, None) == []


async def test_sessions_are_created_and_listed() -> None:
    """With metadata, which is added to."""
    sessions = sessions_with_one()
    assert await sessions.create(ACME, "new", {"task": 1}) == "new"
    assert await sessions.create(ACME, "new", {"seed": 2}) == "new"
    named = await sessions.create(ACME, None, None)

    listed = {each["session_id"]: each for each in await sessions.listed(ACME, None, None)}
    assert listed.keys() == {"s", "new", named}
    assert listed["s"]["trace_count"] == 3
    assert listed["new"]["metadata"] == {"task": 1, "seed": 2}
    assert len(await sessions.listed(ACME, None, 1)) == 1
    assert await sessions.listed(ACME, 1e12, None) == []


async def test_rewards_are_put_on_sessions_and_nodes() -> None:
    """On those that are there."""
    sessions = sessions_with_one()
    await sessions.reward(ACME, "s", None, "reward", 1.0)
    await sessions.reward(ACME, "s", "b", "style", 0.5)
    with pytest.raises(NotFound, match="no node 'x'") as raised:
        await sessions.reward(ACME, "s", "x", "style", 0.5)

    graph = await sessions.find(ACME, "s")
    assert raised.value.param == "node_id"
    assert (graph.rewards, graph.nodes["b"].rewards) == ({"reward": 1.0}, {"style": 0.5})


async def test_a_deleted_session_is_not_found() -> None:
    """The answer has the number of its nodes."""
    sessions = sessions_with_one()

    assert await sessions.delete(ACME, "s") == 3
    with pytest.raises(NotFound):
        await sessions.find(ACME, "s")


async def test_nodes_come_in_pages() -> None:
    """After one of them."""
    graph = await sessions_with_one().find(ACME, "s")

    assert [node.id for node in page_of_nodes(graph, None, 2)] == ["a", "b"]
    assert [node.id for node in page_of_nodes(graph, "b", 2)] == ["c"]
    with pytest.raises(InvalidRequest, match="must be a node of this session") as raised:
        page_of_nodes(graph, "x", None)
    assert raised.value.param == "after"


def test_a_response_may_not_be_too_large() -> None:
    """The error says how to get it in parts, and comes before more of it is made."""
    assert [*within_size([2**25, 2**25], int, "`limit`")] == [2**25, 2**25]
    made = iter([2**25, 2**25, 1, 2])
    with pytest.raises(TooLarge, match="get it in parts, with `limit` and `after`"):
        list(within_size(made, int, "`limit` and `after`"))
    assert [*made] == [2]


async def test_what_is_made_of_a_large_session_counts_as_a_body() -> None:
    """Small ones do not: they are bounded by the number of connections."""
    sessions, budget = sessions_with_one(), BodyBudget()

    for size, held in ((100_000, 100_000), (100, 0)):
        memory = BodyMemory(budget)
        made = b"x" * size
        assert await sessions.encoded(ACME, "s", memory, lambda graph, made=made: made) == made  # type: ignore[misc]
        assert memory.held_bytes == held


async def test_large_sessions_are_read_one_at_a_time() -> None:
    """What they are unpacked to takes many times as much."""
    sessions, budget = sessions_with_one(), BodyBudget()
    await sessions.create(ACME, "s", {"a": "x" * 2**20})
    other = BodyMemory(budget)
    await other.begin_turn(2**21)
    reading = asyncio.create_task(sessions.encoded(ACME, "s", BodyMemory(budget), lambda graph: b""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert not reading.done()
    other.end_turn()
    assert await reading == b""
