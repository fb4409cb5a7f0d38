"""An address for tests with one worker."""

from pathlib import Path

import pytest

from tests.workers import unix_address


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The worker's address."""
    return unix_address(tmp_path)
