"""Sessions are found, listed, rewarded and deleted by their tenants alone."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.trajectories.turns import sampled_choice, turn_of
from tests.workers import until
from tokenwire.coordinator.api.trajectories.sessions import (
    RecordedSessions,
    check_size,
    page_of_nodes,
    within_size,
)
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.http.backpressure import BodyBudget, BodyMemory
from tokenwire.coordinator.trajectories.events import RewardGiven
from tokenwire.coordinator.trajectories.graph import SessionGraph
from tokenwire.coordinator.trajectories.index import SessionIndexes
from tokenwire.coordinator.trajectories.open_store import open_recorder
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.session_limit import RESERVE_BYTES
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
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


def memory() -> BodyMemory:
    """Return that of a request."""
    return BodyMemory(BodyBudget())


async def graph_of(sessions: RecordedSessions, session_id: str = "s") -> SessionGraph:
    """Return a session of the first tenant."""
    found: list[SessionGraph] = []
    await sessions.encoded(ACME, session_id, memory(), lambda graph: found.append(graph) or b"")  # type: ignore[func-returns-value]
    return found[0]


async def listed_sessions(
    sessions: RecordedSessions, caller: Caller, since: float | None, limit: int | None
) -> list[dict[str, Any]]:
    """Return a list as its client gets it."""
    found: list[dict[str, Any]] = json.loads(b"".join(await sessions.listed(caller, since, limit, memory())))
    return found


def reward_of(value: float, name: str = "reward", node: str | None = None) -> RewardGiven:
    """Return a reward."""
    return RewardGiven(1.0, name, value, node)


async def test_a_foreign_session_is_not_found() -> None:
    """As one that nobody has; it cannot be rewarded or deleted either."""
    sessions = sessions_with_one()
    assert (await sessions.summary(ACME, "s", memory())).nodes == {*"abc"}

    for caller, session_id in ((OTHER, "s"), (ACME, "x")):
        with pytest.raises(NotFound, match=f"There is no session '{session_id}'") as raised:
            await sessions.summary(caller, session_id, memory())
        assert raised.value.param == "session_id"
        with pytest.raises(NotFound):
            await sessions.reward(caller, session_id, reward_of(1.0), memory())
        with pytest.raises(NotFound):
            await sessions.delete(caller, session_id, memory())
    assert await listed_sessions(sessions, OTHER, None, None) == []


async def test_sessions_are_created_and_listed() -> None:
    """With metadata, which is added to."""
    sessions = sessions_with_one()
    assert await sessions.create(ACME, "new", {"task": 1}) == "new"
    assert await sessions.create(ACME, "new", {"seed": 2}) == "new"
    named = await sessions.create(ACME, None, None)

    shown = {each["session_id"]: each for each in await listed_sessions(sessions, ACME, None, None)}
    assert shown.keys() == {"s", "new", named}
    assert shown["s"]["trace_count"] == 3
    assert shown["new"]["metadata"] == {"task": 1, "seed": 2}
    assert len(await listed_sessions(sessions, ACME, None, 1)) == 1
    assert await listed_sessions(sessions, ACME, 1e12, None) == []


async def test_rewards_are_put_on_sessions_and_nodes() -> None:
    """On those that are there."""
    sessions = sessions_with_one()
    await sessions.reward(ACME, "s", reward_of(1.0), memory())
    await sessions.reward(ACME, "s", reward_of(0.5, "style", "b"), memory())
    with pytest.raises(NotFound, match="no node 'x'") as raised:
        await sessions.reward(ACME, "s", reward_of(0.5, "style", "x"), memory())

    graph = await graph_of(sessions)
    assert raised.value.param == "node_id"
    assert (graph.rewards, graph.nodes["b"].rewards) == ({"reward": 1.0}, {"style": 0.5})


async def test_a_deleted_session_is_not_found() -> None:
    """The answer has the number of its nodes."""
    sessions = sessions_with_one()

    assert await sessions.delete(ACME, "s", memory()) == 3
    with pytest.raises(NotFound):
        await sessions.summary(ACME, "s", memory())


async def test_nodes_come_in_pages() -> None:
    """After one of them."""
    graph = await graph_of(sessions_with_one())

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
        request = BodyMemory(budget)
        made = b"x" * size
        assert await sessions.encoded(ACME, "s", request, lambda graph, made=made: made) == made  # type: ignore[misc]
        assert request.held_bytes == held


@pytest.mark.parametrize("what", ["encoded", "summary", "listed", "reward", "delete"])
async def test_large_sessions_are_read_one_at_a_time(what: str) -> None:
    """Whatever for: what they are unpacked to takes many times as much."""
    sessions, budget = sessions_with_one(), BodyBudget()
    await sessions.create(ACME, "s", {"a": "x" * 2**20})
    other, own = BodyMemory(budget), BodyMemory(budget)
    reads: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "encoded": lambda: sessions.encoded(ACME, "s", own, lambda graph: b""),
        "summary": lambda: sessions.summary(ACME, "s", own),
        "listed": lambda: sessions.listed(ACME, None, None, own),
        "reward": lambda: sessions.reward(ACME, "s", reward_of(1.0, node="a"), own),
        "delete": lambda: sessions.delete(ACME, "s", own),
    }
    await other.begin_turn(2**21)
    reading = asyncio.create_task(reads[what]())
    await until(lambda: bool(budget.turns_of(2**21)._waiting))

    assert not reading.done()
    other.end_turn()
    await reading


async def test_a_large_session_is_read_until_its_thread_ends() -> None:
    """A turn that is given up after a while does not let the next one begin beside it: no thread can be stopped."""
    sessions, budget = sessions_with_one(), BodyBudget(patience_s=0.0)
    await sessions.create(ACME, "s", {"a": "x" * 2**20})
    at_once, most, goes_on = 0, 0, threading.Event()

    def encode(_: SessionGraph) -> bytes:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        goes_on.wait(10)
        at_once -= 1
        return b""

    reads = [asyncio.create_task(sessions.encoded(ACME, "s", BodyMemory(budget), encode)) for _ in range(2)]
    await until(lambda: at_once == 1)
    reads[0].cancel()
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.wait(reads)

    assert most == 1


async def test_tenants_take_turns_at_reading_large_sessions() -> None:
    """One that asks many times delays another by one of them."""
    sessions, budget = sessions_with_one(), BodyBudget()
    for caller in (ACME, OTHER):
        await sessions.create(caller, "s", {"a": "x" * 2**20})
    read, goes_on = list[str](), threading.Event()

    def begin(caller: Caller) -> asyncio.Task[bytes]:
        def encode(_: SessionGraph) -> bytes:
            read.append(caller.tenant)
            goes_on.wait(10)
            return b""

        return asyncio.create_task(
            sessions.encoded(caller, "s", BodyMemory(budget, share=caller.share), encode), name=caller.tenant
        )

    reads = [begin(caller) for caller in (ACME, ACME, ACME, OTHER)]
    await until(lambda: len(read) == 1)
    await until(lambda: len(sessions._reading._waiting) == 2)
    goes_on.set()
    await asyncio.wait(reads)

    assert read == ["acme", "other", "acme", "acme"]


async def test_a_long_list_counts_as_a_body_and_has_a_most() -> None:
    """Whatever metadata its sessions have."""
    sessions, request = sessions_with_one(), memory()
    for number in range(3):
        await sessions.create(ACME, f"large-{number}", {"a": "x" * 100_000})

    pieces = await sessions.listed(ACME, None, None, request)
    assert request.held_bytes == sum(map(len, pieces)) - len(b"[,,,]")
    with pytest.raises(TooLarge, match="`limit` and `since`"):
        check_size(2**26 + 1, "`limit` and `since`")


@pytest.mark.parametrize("is_shared", [False, True], ids=["in memory", "in a directory"])
async def test_a_full_session_takes_rewards_and_metadata_until_it_refuses_them(tmp_path: Path, is_shared: bool) -> None:
    """None is lost that was taken; of a node as of the session."""
    settings = TrajectorySettings(enabled=True, max_session_bytes=2000, store=str(tmp_path) if is_shared else None)
    recorder, key = open_recorder(settings), ("acme", "s")
    assert recorder is not None
    sessions = RecordedSessions(recorder)
    for node in "abcdefgh":
        recorder.append(key, "acme", turn_of([1], sampled_choice(node, [2])))
    assert len((await graph_of(sessions)).nodes) < 8

    await sessions.create(ACME, "s", {"task": 1})
    await sessions.reward(ACME, "s", reward_of(1.0), memory())
    await sessions.reward(ACME, "s", reward_of(2.0, node="a"), memory())
    graph = await graph_of(sessions)
    assert (graph.metadata, graph.rewards, graph.nodes["a"].rewards) == ({"task": 1}, {"reward": 1.0}, {"reward": 2.0})

    for task in range(RESERVE_BYTES // 50_200):
        await sessions.create(ACME, "s", {"task": task, "notes": "x" * 50_000})
    with pytest.raises(TooLarge, match="The session is full"):
        await sessions.create(ACME, "s", {"task": 1000, "notes": "x" * 50_000})
    graph = await graph_of(sessions)
    assert (graph.metadata["task"], graph.rewards) == (task, {"reward": 1.0})
    assert await sessions.create(ACME, "s", None) == "s"
    await recorder.close()
