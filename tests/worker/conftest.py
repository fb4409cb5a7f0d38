"""Workers' steerings that tests share."""

from collections.abc import AsyncIterator

import pytest

from tests.worker.steered import Steered


@pytest.fixture
async def one() -> AsyncIterator[Steered]:
    """A worker's steering."""
    steered = await Steered().start()
    yield steered
    await steered.engine.stop()


@pytest.fixture
async def other() -> AsyncIterator[Steered]:
    """Another worker's."""
    steered = await Steered().start()
    yield steered
    await steered.engine.stop()
