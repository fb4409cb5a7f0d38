"""Requests generated from the OpenAPI document cause no internal errors and leak nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import simulated_service


@pytest.mark.long
def test_no_request_causes_an_internal_error(tmp_path: Path) -> None:
    """Valid and invalid requests to every route get a status below 500 in time; then no slot is open."""
    options = ("--sim-step-ms", "1", "--sim-max-model-len", "256")
    with simulated_service(tmp_path, *options) as service:
        fuzz = [sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json"]
        fuzz += ["--checks", "not_a_server_error", "--max-examples", "5", "--request-timeout", "20"]
        fuzz += ["--generation-deterministic", "--no-color"]
        result = subprocess.run(fuzz, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

        assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
        service.wait_slots(0)
        assert "Traceback" not in service.coordinator.log, service.coordinator.log[-5000:]
        assert "Traceback" not in service.workers[0].log
