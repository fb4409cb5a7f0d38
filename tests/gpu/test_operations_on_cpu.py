"""Bar: the steps of operations and transfers run dry on a CPU, and skip only what needs a GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.runner import PASSED, SKIPPED

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("step", "passed"),
    [
        ("weights", {"start", "new engine", "directory", "named parameters"}),
        ("sleep", {"start", "small", "level 0", "not enabled"}),
        ("kv_transfer", {"folder"}),
    ],
)
def test_a_step_runs_without_a_gpu(tmp_path: Path, step: str, passed: set[str]) -> None:
    """These parts pass, and the others say why they cannot."""
    command = [sys.executable, "-m", "gpu", "--device", "cpu", "--steps", step, "--out", str(tmp_path)]
    subprocess.run(command, check=True)
    parts = json.loads((tmp_path / f"{step}.json").read_text())["result"]["parts"]
    assert passed <= {name for name, part in parts.items() if part["status"] == PASSED}
    assert all(part["reason"] for part in parts.values() if part["status"] == SKIPPED)
