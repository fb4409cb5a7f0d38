"""Opens the configured store of trajectories: in memory, in a directory, or in Redis."""

from pathlib import Path

from tokenwire.coordinator.trajectories.directory_store import DirectoryTrajectoryStore
from tokenwire.coordinator.trajectories.index import SessionIndexes
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.session_limit import SessionLimit
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.coordinator.trajectories.store import MemoryTrajectoryStore, OnDropped, TrajectoryStore


def open_recorder(settings: TrajectorySettings) -> TrajectoryRecorder | None:
    """Return what records sessions; None if they are not recorded. Raises InvalidRequest."""
    if not settings.enabled:
        return None
    indexes = SessionIndexes(settings.ttl_s)
    return TrajectoryRecorder(open_trajectory_store(settings, indexes.forget), indexes)


def open_trajectory_store(settings: TrajectorySettings, on_dropped: OnDropped) -> TrajectoryStore:
    """Return the store. Raises InvalidRequest if its directory cannot be used."""
    limit = SessionLimit(settings.max_session_bytes)
    if settings.store is None:
        return MemoryTrajectoryStore(settings.max_bytes, settings.ttl_s, on_dropped, limit=limit)
    if not settings.is_redis:
        return DirectoryTrajectoryStore(Path(settings.store), settings.max_bytes, settings.ttl_s, on_dropped, limit)
    from tokenwire.coordinator.trajectories.redis_store import (
        RedisTrajectoryStore,
    )  # without a URL, it is not even imported

    return RedisTrajectoryStore(settings, on_dropped)
