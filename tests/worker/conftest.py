"""Fixtures of the worker's tests: an address, and serving-state controllers over simulated engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.serving import ServingWorker
from tests.workers import unix_address


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The worker's address."""
    return unix_address(tmp_path)


@pytest.fixture
async def one() -> AsyncIterator[ServingWorker]:
    """A worker's serving-state controller with its engine."""
    serving = await ServingWorker().start()
    yield serving
    await serving.engine.stop()


@pytest.fixture
async def other() -> AsyncIterator[ServingWorker]:
    """Another worker's controller with its engine."""
    serving = await ServingWorker().start()
    yield serving
    await serving.engine.stop()
