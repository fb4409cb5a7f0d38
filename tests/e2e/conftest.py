"""Services shared by end-to-end tests: real processes on real ports."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.e2e.scripted import scripted_service
from tests.processes import Service, simulated_service


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A coordinator in front of two fast simulated workers."""
    folder = tmp_path_factory.mktemp("service")
    options = ("--sim-step-ms", "2", "--sim-max-model-len", "2048", "--served-model-name", "sim")
    with simulated_service(folder, *options, "--served-model-name", "alias", workers=2) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log
        for worker in started.workers:
            assert "Traceback" not in worker.log, worker.log


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[OpenAI]:
    """The real OpenAI client for the service; it never retries, so that every error is visible."""
    with OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as openai:
        yield openai


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Models with the replies of tests.e2e.scripted, and parsers for tool calls and reasoning."""
    with scripted_service(tmp_path_factory.mktemp("scripted")) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture(scope="session")
def scripted_client(scripted: Service) -> Iterator[OpenAI]:
    """The real OpenAI client for those models."""
    with OpenAI(base_url=f"{scripted.url}/v1", api_key="unused", max_retries=0) as openai:
        yield openai


_QUICK = ("test_bad_input", "test_openai_client", "test_admin_operations", "test_tokens")
"""Modules whose tests share one service."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that start processes of their own, or wait for parsers to load."""
    ours = [item for item in items if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent]
    for item in ours:
        if item.path.stem not in _QUICK or "scripted" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place for logs and caches of one test."""
    return tmp_path
