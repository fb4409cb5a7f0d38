"""The health checks of the compose file distinguish ready services from others."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.processes import coordinator, simulated_service

FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"


def exit_code_of_check(service: str, address: str) -> int:
    """Run the check of a service that listens elsewhere; return its exit code."""
    test = yaml.safe_load(FILE.read_text())["services"][service]["healthcheck"]["test"]
    assert test[:3] == ["CMD", "python3", "-c"]
    program = test[3].replace({"coordinator": "127.0.0.1:8000", "worker": "127.0.0.1:50051"}[service], address)
    assert address in program
    return subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=60, check=False
    ).returncode


@pytest.mark.slow
def test_services_that_are_ready_are_healthy(tmp_path: Path) -> None:
    """A worker with its engine, and a coordinator with a worker; afterwards nothing listens."""
    with simulated_service(tmp_path) as service:
        (worker,) = service.addresses
        front = urlsplit(service.url).netloc
        assert exit_code_of_check("worker", worker) == 0
        assert exit_code_of_check("coordinator", front) == 0
    assert exit_code_of_check("worker", worker) != 0
    assert exit_code_of_check("coordinator", front) != 0


@pytest.mark.slow
def test_a_coordinator_without_a_worker_is_unhealthy(tmp_path: Path) -> None:
    """It responds, with a 503."""
    with coordinator(tmp_path, ["unix:/nowhere"], ready=False) as (_, url):
        assert exit_code_of_check("coordinator", urlsplit(url).netloc) != 0
