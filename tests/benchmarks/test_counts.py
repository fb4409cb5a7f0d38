"""What a request and a token take of the coordinator stays what it was, unless a line says why."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.counts import BASELINE, PYTHON, Figure, differences, read_baseline, write_baseline

pytestmark = pytest.mark.slow


def compared(*arguments: str) -> str:
    """Count under the baseline's version of Python; return what differs from the baseline."""
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        pytest.skip(f"calls are counted under Python {PYTHON}")
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.counts", *arguments], capture_output=True, text=True, timeout=250
    )
    return ran.stderr if ran.returncode else ""


def test_requests_and_tokens_take_what_they_took() -> None:
    """Calls, memory and system calls of requests and of plain tokens are within 3 % of the baseline."""
    assert compared() == ""


@pytest.mark.engine
def test_parsed_tokens_take_what_they_took() -> None:
    """Calls and writes of a token that vLLM's parser reads are within 3 % of the baseline."""
    pytest.importorskip("vllm")
    assert compared("--parsed") == ""


def test_each_figure_of_the_baseline_has_a_reason() -> None:
    """Every line says why its count is what it is."""
    baseline = read_baseline()

    assert baseline
    assert all(figure.why.strip() for figure in baseline.values())


def test_counts_beyond_the_tolerance_are_named() -> None:
    """A count that grew needs a reason, one that shrank is to be kept, and small changes are neither."""
    baseline = {("chat", name): Figure(100.0, "") for name in ("grown", "shrunk", "much the same")}

    found = differences(baseline, {"chat": {"grown": 104, "shrunk": 96, "much the same": 103, "new": 1}})

    assert found == [
        "chat: 104 grown instead of 100, which grew: say why",
        "chat: 96 shrunk instead of 100, which shrank: keep it",
        "chat: 1 new, of which the baseline has none",
    ]


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Writing the baseline changes nothing but what was counted anew."""
    copy = tmp_path / "counts.tsv"

    write_baseline(read_baseline(), copy)

    assert copy.read_text() == BASELINE.read_text()
