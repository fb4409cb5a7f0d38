"""Tests of the metrics of recorded sessions."""

from pathlib import Path

import pytest

from tokenwire.coordinator.trajectories.directory_store import DirectoryTrajectoryStore
from tokenwire.coordinator.trajectories.metrics import TrajectoryCollector
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore, SessionKey, TrajectoryStore
from tokenwire.errors import Unavailable


def dropped_by(store: TrajectoryStore) -> dict[str, float]:
    """Return the values of the families."""
    return {family.name: family.samples[0].value for family in TrajectoryCollector(store).collect()}


async def test_sessions_that_there_is_no_room_for_are_counted() -> None:
    """Not those that were deleted."""
    store = MemoryTrajectoryStore(50_000, 60.0, list[SessionKey]().append)
    for name in ("a", "b", "c"):
        store.append(("acme", name), "acme", b"x" * 20_000)
    await store.delete(("acme", "c"))

    assert dropped_by(store) == {"tokenwire_trajectory_events_dropped": 0, "tokenwire_trajectory_sessions_dropped": 1}


async def test_events_that_a_store_does_not_take_are_counted(tmp_path: Path) -> None:
    """Each of them."""
    store = DirectoryTrajectoryStore(tmp_path / "sessions", 50_000, 60.0, list[SessionKey]().append)
    (tmp_path / "sessions").rmdir()
    store.append(("acme", "a"), "acme", b"1")
    with pytest.raises(Unavailable):
        await store.put(("acme", "a"), "acme", b"2")

    assert dropped_by(store) == {"tokenwire_trajectory_events_dropped": 2, "tokenwire_trajectory_sessions_dropped": 0}
    await store.close()
