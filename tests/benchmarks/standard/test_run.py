"""A tiny part of the standard benchmarks runs for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(2400)]


def test_all_servers_serve_the_loads_of_both_tools(tmp_path: Path) -> None:
    """Each request, with as many tokens as it asks for; both tools' CPU time is known."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.standard",
        "--quick",
        "--only",
        "front-end",
        "--results",
        str(tmp_path),
    ]
    subprocess.run(command, check=True)

    rows = json.loads((tmp_path / "front-end.json").read_text())["rows"]
    assert len(rows) == 12
    for row in rows:
        asked = row["load"]
        assert (row["completed"], row["failed"]) == (asked["requests"], 0), row
        assert row["output_tokens"] == asked["requests"] * asked["output_tokens"], row
        assert min(row["front_end_cpu_s"], row["engine_cpu_s"], row["driver_cpu_s"]) > 0, row
