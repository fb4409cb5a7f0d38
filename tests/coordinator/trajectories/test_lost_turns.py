"""A session whose turns were dropped says how many are missing, and later ones do not refer to them."""

import contextlib
from pathlib import Path

from tests.coordinator.trajectories.turns import sampled_choice, turn_of
from tokenwire.coordinator.trajectories.directory_store import DirectoryTrajectoryStore
from tokenwire.coordinator.trajectories.events import unpack_event
from tokenwire.coordinator.trajectories.graph import SessionGraph, build_graph
from tokenwire.coordinator.trajectories.index import SessionIndexes
from tokenwire.coordinator.trajectories.open_store import open_recorder
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore, SessionKey
from tokenwire.coordinator.types import TokenPrompt
from tokenwire.errors import Unavailable

KEY = ("acme", "s")


async def recorded_graph(recorder: TrajectoryRecorder) -> SessionGraph:
    """Return the graph of the session as its recorder's clients read it."""
    recorded = recorder.recorded(KEY)
    events = [event for each in await recorder.store.read(KEY) if (event := unpack_event(each))]
    return build_graph(events, recorded)


async def test_turns_are_stored_whole_after_another_process_dropped_their_session(tmp_path: Path) -> None:
    """But for the one by which that is found out; all that is gone is counted."""
    indexes = SessionIndexes(60.0)
    store = DirectoryTrajectoryStore(tmp_path, 2**20, 60.0, indexes.forget)
    other = DirectoryTrajectoryStore(tmp_path, 2**20, 60.0, list[SessionKey]().append)
    recorder, prompt = TrajectoryRecorder(store, indexes), [1]
    for node in ("first", "second", "lost", "whole", "last"):
        recorder.append_turn(KEY, "", turn_of(prompt, sampled_choice(node, [2])), TokenPrompt(prompt))
        prompt = [*prompt, 2, 3]
        await store.flush()
        if node == "second":
            assert await other.delete(KEY)

    graph = await recorded_graph(recorder)
    assert ([*graph.nodes], graph.lost) == (["whole", "last"], 3)
    assert graph.nodes["last"].parent is graph.nodes["whole"]
    await store.close()
    await other.close()


async def test_a_session_that_memory_dropped_and_that_goes_on_says_what_it_lost() -> None:
    """Until it is deleted on purpose."""
    indexes = SessionIndexes(60.0)
    recorder, prompt = TrajectoryRecorder(MemoryTrajectoryStore(50_000, 60.0, indexes.forget), indexes), [1]
    for node in ("a", "b", "c"):
        if node == "c":
            recorder.store.append(("acme", "another"), "", b"x" * 49_000)
        recorder.append_turn(KEY, "", turn_of(prompt, sampled_choice(node, [2])), TokenPrompt(prompt))
        prompt = [*prompt, 2, 3]

    graph = await recorded_graph(recorder)
    assert ([*graph.nodes], graph.lost) == (["c"], 2)
    await recorder.delete(KEY)
    recorder.append_turn(KEY, "", turn_of(prompt, sampled_choice("d", [2])), TokenPrompt(prompt))
    assert (await recorded_graph(recorder)).lost == 0


async def test_turns_beyond_the_size_of_a_session_are_lost() -> None:
    """Until it is deleted. What is stored is still read."""
    settings = TrajectorySettings(enabled=True, max_session_bytes=4000)
    recorder, prompt = open_recorder(settings), [1]
    assert recorder is not None
    for node in "abcdefghij":
        recorder.append_turn(KEY, "", turn_of(prompt, sampled_choice(node, [2])), TokenPrompt(prompt))
        prompt = [*prompt, 2, *[3] * 100]

    graph = await recorded_graph(recorder)
    assert [*graph.nodes][:3] == [*"abc"]
    assert len(graph.nodes) + graph.lost == 10
    assert graph.lost == recorder.store.dropped.events > 0
    await recorder.delete(KEY)
    recorder.append_turn(KEY, "", turn_of([1], sampled_choice("k", [2])), TokenPrompt([1]))
    assert (await recorded_graph(recorder)).lost == 0


async def test_turns_that_a_failing_store_does_not_take_are_lost(tmp_path: Path) -> None:
    """In the middle, and at the end for those who ask the process that recorded them."""
    indexes, folder = SessionIndexes(60.0), tmp_path / "sessions"
    recorder, prompt = TrajectoryRecorder(DirectoryTrajectoryStore(folder, 2**20, 60.0, indexes.forget), indexes), [1]
    lost = []
    for node in ("a", "b", "c", "d"):
        (tenant_folder,) = folder.iterdir() if node != "a" else (folder,)
        if node in ("b", "d"):
            tenant_folder.rename(tmp_path / "away")
            tenant_folder.write_text("no folder")
        recorder.append_turn(KEY, "", turn_of(prompt, sampled_choice(node, [2])), TokenPrompt(prompt))
        prompt = [*prompt, 2, 3]
        with contextlib.suppress(Unavailable):
            await recorder.store.flush()
        if node in ("b", "d"):
            tenant_folder.unlink()
            (tmp_path / "away").rename(tenant_folder)
        lost.append((await recorded_graph(recorder)).lost)

    assert lost == [0, 1, 1, 2]
    await recorder.close()
