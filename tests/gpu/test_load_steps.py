"""The steps that load servers run dry on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]


def dry_parts(step: str, out: Path) -> dict[str, Any]:
    """Run a step with next to no model; returns its parts."""
    command = [sys.executable, "-m", "gpu", "--device", "cpu", "--steps", step, "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    parts: dict[str, Any] = json.loads((out / f"{step}.json").read_text())["result"]["parts"]
    assert {part["status"] for part in parts.values()} == {"passed"}
    return parts


def test_both_servers_answer_each_load(tmp_path: Path) -> None:
    """All requests of the bench, and all turns of conversations."""
    parts = dry_parts("load", tmp_path)

    benches = [part for part in parts.values() if "run" in part]
    assert len(benches) == 6
    assert [part["completed"] for part in benches] == [part["prompts"] for part in benches]
    turns = [turn for name, part in parts.items() if "conversations" in name for turn in part["turns"]]
    assert [turn["completed"] for turn in turns] == [2] * 6


def test_each_way_to_drive_an_engine_is_measured(tmp_path: Path) -> None:
    """In both rounds, with steps in which all streams decode."""
    parts = dry_parts("overhead", tmp_path)

    assert len(parts) == 16
    assert all(part["steps"] > 10 for part in parts.values())


def test_heavy_outputs_are_valid_on_both_servers(tmp_path: Path) -> None:
    """Each reply of each kind."""
    parts = dry_parts("heavy_outputs", tmp_path)

    assert [(part["valid"], part["errors"]) for part in parts.values()] == [(6, 0)] * 8
