"""Plots and the table of faults stand on pages with the command that makes them and the date of their results."""

import json
import re
from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tests.faults.scenarios import FAULTS

PLOTS = ROOT / "docs" / "plots"
RESULTS = ROOT / "benchmarks" / "results"
FILES = {"cost": "per-request", "kill": "faults", "routing": "routing", "memory": "soak", "gpu": "gpu/load"}
"""A file of results for each plot."""


def caption(name: str) -> str:
    """Return the text below a plot, on the one page that shows it."""
    pattern = re.compile(rf"\]\(\S*plots/{name}\.svg\)\n\n\*(.*?)\*\n", re.DOTALL)
    (found,) = [match[1] for path in (ROOT / "docs").rglob("*.md") for match in pattern.finditer(path.read_text())]
    return found


@pytest.mark.parametrize("path", sorted(PLOTS.iterdir()), ids=lambda path: path.stem)
def test_a_plot_shows_how_and_when_it_was_made(path: Path) -> None:
    """With the target of make that measures, and the one that draws."""
    results = json.loads((RESULTS / f"{FILES[path.stem]}.json").read_text())
    text = caption(path.stem)

    assert re.search(r"`make (bench ARGS=|gpu ARGS=|faults`)", text)
    assert "`make plots`" in text
    assert results["when"].split()[0] in text


def test_the_table_of_faults_has_all_faults_of_one_run() -> None:
    """That of the results from which the plots are drawn too, with its date."""
    results = json.loads((RESULTS / "faults.json").read_text())
    page = (ROOT / "docs" / "reference" / "faults.md").read_text()

    assert [each["fault"] for each in results["faults"]] == [fault.name for fault in FAULTS]
    for each in results["faults"]:
        figures = f"{each['streams']} | {each['lost']} | {each['corrupted']} | {each['longest_gap_s']:.2f} s"
        assert f"| {each['fault']} | {figures} |" in page
    assert results["when"] in page
