"""The configured store is opened, and only if sessions are recorded."""

from pathlib import Path

import pytest

from tokenwire.coordinator.trajectories.directory_store import DirectoryTrajectoryStore
from tokenwire.coordinator.trajectories.open_store import open_recorder
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore


def test_without_the_option_nothing_is_recorded() -> None:
    """By default."""
    assert open_recorder(TrajectorySettings()) is None


@pytest.mark.parametrize(("store", "kind"), [("", MemoryTrajectoryStore), ("folder", DirectoryTrajectoryStore)])
def test_sessions_are_kept_where_they_are_to_be(tmp_path: Path, store: str, kind: type) -> None:
    """In memory unless a place is named."""
    settings = TrajectorySettings(enabled=True, store=str(tmp_path / store) if store else None)
    recorder = open_recorder(settings)

    assert recorder is not None
    assert type(recorder.store) is kind


def test_a_redis_is_opened_by_its_url() -> None:
    """It is connected to when it is first used."""
    recorder = open_recorder(TrajectorySettings(enabled=True, store="redis://127.0.0.1:1"))

    assert recorder is not None
    assert type(recorder.store).__name__ == "RedisTrajectoryStore"
