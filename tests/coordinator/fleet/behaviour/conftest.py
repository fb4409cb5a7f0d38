"""A cluster for tests of failover."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.behaviour.cluster import NAMES, Cluster
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Two of three workers run; a test may set their simulation."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    for name in NAMES[:2]:
        await cluster.start(name, step_ms=4, **getattr(request, "param", {}))
    yield cluster
    await cluster.stop()
