"""Bar: the kit's first steps run dry on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.runner import PASSED, SKIPPED

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]


def outcome_on_cpu(step: str, out: Path) -> dict[str, Any]:
    """Run a step with the embedded model; return its results."""
    command = [sys.executable, "-m", "gpu", "--device", "cpu", "--steps", step, "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    result: dict[str, Any] = json.loads((out / f"{step}.json").read_text())["result"]
    return result


def test_a_job_answers_every_kind_of_chat(tmp_path: Path) -> None:
    """With figures of the machine and of one stream."""
    result = outcome_on_cpu("job", tmp_path)

    assert {part["status"] for part in result["parts"].values()} == {PASSED}
    assert result["parts"]["chat"]["equal"]
    assert result["parts"]["one stream"]["tokens_per_second"] > 0
    assert set(result["cpu_seconds"]) == {"worker", "coordinator"}


def test_no_stream_is_lost_with_its_worker(tmp_path: Path) -> None:
    """And in float32 all are exact."""
    parts = outcome_on_cpu("resume", tmp_path)["parts"]

    assert parts["as is"]["lost"] == []
    assert sorted(parts["as is"]["exact"]) == sorted(parts["as is"]["streams"])
    assert set(parts["as is"]["noise"].values()) == {None}
    assert parts["batch invariant"]["status"] == SKIPPED


def test_replies_are_those_of_vllms_server(tmp_path: Path) -> None:
    """Without and with parsers."""
    parts = outcome_on_cpu("parity", tmp_path)["parts"]

    assert {name: part["accepted"] for name, part in parts.items()} == {"plain": 60, "parsers": 12}
    assert [part["generated_differs"] for part in parts.values()] == [[], []]
    assert all(part["verdicts"].get("different", 0) == 0 for part in parts.values())
