"""Settings that contradict each other are errors at startup."""

import pytest

from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.errors import InvalidRequest


def test_a_store_is_a_directory_or_a_redis() -> None:
    """Without a password in its URL."""
    assert TrajectorySettings(enabled=True, store="redis://h:1/0").is_redis
    assert not TrajectorySettings(enabled=True, store="/var/lib/sessions").is_redis
    assert not TrajectorySettings(enabled=True).is_redis
    with pytest.raises(InvalidRequest, match="must not contain a password"):
        TrajectorySettings(enabled=True, store="redis://:secret@h:1/0")
    with pytest.raises(InvalidRequest, match="schemes"):
        TrajectorySettings(enabled=True, store="s3://bucket")


def test_a_store_needs_recording() -> None:
    """Else nothing would ever be in it."""
    with pytest.raises(InvalidRequest, match="needs --enable-trajectories"):
        TrajectorySettings(store="/var/lib/sessions")


def test_several_processes_need_a_store_that_they_share() -> None:
    """Else each would have a part of a session."""
    with pytest.raises(InvalidRequest, match="--trajectories-store"):
        CoordinatorSettings(("a:1",), processes=2, trajectories=TrajectorySettings(enabled=True))
    CoordinatorSettings(("a:1",), processes=2, trajectories=TrajectorySettings(enabled=True, store="/tmp"))
