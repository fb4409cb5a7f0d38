"""What holds for all tests."""

import gc
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from httpx._transports import default as httpx_transports
from httpx2._transports import default as httpx2_transports
from hypothesis import settings

from tests.certificates import Authority
from tests.clock import Clock
from tests.workers import unix_address
from tokenwire.process.gc_tuning import gc_disabled

pytest_plugins = ["tests.skips", "tests.scheduling", "tests.real_services"]

# Tests run side by side on busy machines: the duration of an example does not depend on the code alone.
settings.register_profile("tokenwire", deadline=None)
settings.load_profile("tokenwire")

# Every client, so every httpx.get and every OpenAI(), reads all certificates that the machine trusts: 30 ms, mostly to
# speak plain HTTP.
for transports in (httpx_transports, httpx2_transports):
    transports.create_ssl_context = cache(transports.create_ssl_context)  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage meanwhile: nearly all that is imported and collected stays."""
    with gc_disabled():
        return (yield)


def pytest_collection_finish() -> None:
    """Refuse tests that import vLLM where they are only collected: it takes ten seconds of every process."""
    if "vllm" in sys.modules:
        raise pytest.UsageError("vLLM was imported while tests were collected; see tests/lazily.py")
    gc.freeze()  # so that no later collection looks at all of it again


@pytest.fixture
def time() -> Clock:
    """A clock that the test advances."""
    return Clock()


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The address of a worker."""
    return unix_address(tmp_path)


@pytest.fixture(scope="module")
def authority() -> Authority:
    """An authority that a module's certificates are from."""
    return Authority()
