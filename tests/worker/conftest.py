"""Fixtures of the worker's tests: serving-state controllers over simulated engines."""

from collections.abc import AsyncIterator

import pytest

from tests.worker.serving import ServingWorker


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
