"""Services with real engines that test files share; tests.scheduling hands these files to one process."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.servers import running_service
from tests.processes import Service
from tests.tiny_model import tiny_model

_ADAPTERS = ("--enable-lora", "--max-lora-rank", "8")


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Plain `tokenwire serve` with the tiny model; test_real_failover.py kills its worker."""
    with running_service(tmp_path_factory.mktemp("real"), model=tiny_model()) as started:
        yield started


@pytest.fixture(scope="session")
def trainable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The same with routes for trainers and room for one adapter; test_real_service.py ends by killing its engine."""
    with running_service(tmp_path_factory.mktemp("trainable"), ["--enable-rl"], _ADAPTERS, tiny_model()) as started:
        yield started


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The embedded model with the options of `make serve`, and those that the examples need."""
    options = [*make_serve_options(), "--enable-rl", "--enable-trajectories"]
    with running_service(tmp_path_factory.mktemp("embedded"), options, _ADAPTERS) as started:
        yield started


def make_serve_options() -> list[str]:
    """Return the options that `make serve` passes to `tokenwire serve`."""
    root = Path(__file__).parents[1]
    shown = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "serve"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    _, _, *options = shlex.split(shown.splitlines()[-1])
    return [str(root / option) if option.startswith("scripts/") else option for option in options]
