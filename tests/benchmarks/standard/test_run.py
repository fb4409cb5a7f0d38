"""A tiny part of the standard benchmarks runs for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.standard.request_cases import BEHIND_CASES, CASES

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(2400)]


def run_part(part: str, results: Path, *options: str) -> None:
    """Run a part with tiny loads."""
    command = [sys.executable, "-m", "benchmarks.standard", "--quick", "--only", part, "--results", str(results)]
    subprocess.run([*command, *options], check=True)


def test_all_servers_serve_the_loads_of_both_tools(tmp_path: Path) -> None:
    """Each request, with as many tokens as it asks for; the CPU time of both tools and of front ends is known."""
    run_part("front-end", tmp_path)

    rows = json.loads((tmp_path / "front-end.json").read_text())["rows"]
    assert len(rows) == 12
    for row in rows:
        asked = row["load"]
        assert (row["completed"], row["failed"]) == (asked["requests"], 0), row
        assert row["output_tokens"] == asked["requests"] * asked["output_tokens"], row
        assert min(row["front_end_cpu_s"], row["driver_cpu_s"]) > 0 <= row["engine_cpu_s"], row


def test_requests_are_measured_in_rounds(tmp_path: Path) -> None:
    """Each case, here on one server and on the floors; every reply was whole, or the run had failed."""
    run_part("requests", tmp_path, "--server", "tokenwire")

    found = json.loads((tmp_path / "requests.json").read_text())["rounds"]
    assert {name: set(servers) for name, servers in found.items()} == {
        name: set(case.servers) - {"smg", "vllm"} for name, case in {**CASES, **BEHIND_CASES}.items()
    }
    assert all(value > 0 for servers in found.values() for (figures,) in servers.values() for value in figures.values())
