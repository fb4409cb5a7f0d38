"""The page of figures from a GPU shows the committed results, which name no machine."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from gpu.plots import front_cpu, rows_of
from tests.docs.commands import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "gpu"
PAGE = (ROOT / "docs" / "reference" / "gpu.md").read_text()
LOADS = rows_of(json.loads((RESULTS / "load.json").read_text()))
NAMES = {"vllm": "vLLM", "tokenwire": "tokenwire"}


@pytest.mark.parametrize("row", LOADS, ids=lambda row: f"{row['server']}-{row['run']}")
def test_a_load_stands_on_the_page_as_it_was_measured(row: dict[str, object]) -> None:
    """Its throughput, its times to the first token, and the CPU time beside the engine."""
    (line,) = [
        line
        for line in PAGE.splitlines()
        if f"| {NAMES[str(row['server'])]} | {row['output_tokens_per_s']:,.0f} | {row['ttft_p50_ms']:,.0f} / " in line
    ]

    assert f" / {row['ttft_p99_ms']:,.0f} |" in line
    assert line.endswith(f"| {front_cpu(row):.0f} |")


def test_the_facts_of_the_machine_stand_on_the_page() -> None:
    """With the versions that computed, and the day."""
    facts = json.loads((RESULTS / "machine.json").read_text())

    assert all(facts[name] in PAGE for name in ("when", "gpu", "driver", "torch", "vllm", "python"))


@pytest.mark.parametrize("path", sorted(RESULTS.iterdir()), ids=lambda path: path.stem)
def test_results_have_no_paths(path: Path) -> None:
    """Messages of errors often do."""
    text = path.read_text()

    assert not [place for place in ("/work", "/tmp", "/opt", "/root", "/home") if place in text]
