"""What holds for all tests."""

import sys

import pytest
from hypothesis import settings

pytest_plugins = ["tests.skips", "tests.scheduling"]

# Tests run side by side on busy machines: how long an example takes says nothing of the code.
settings.register_profile("tokenwire", deadline=None)
settings.load_profile("tokenwire")


def pytest_collection_finish() -> None:
    """Refuse tests that import vLLM where they are only collected: it takes ten seconds of every process."""
    if "vllm" in sys.modules:
        raise pytest.UsageError("vLLM was imported while tests were collected; see tests/lazily.py")
