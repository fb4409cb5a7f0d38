"""Each plot stands on a page, with the command that makes it and the date and machine of its results."""

import json
import re
from pathlib import Path

import pytest

from tests.docs.commands import ROOT

PLOTS = ROOT / "docs" / "plots"
RESULTS = ROOT / "benchmarks" / "results"
FILES = {"cost": "per-request", "kill": "faults", "routing": "routing", "memory": "soak"}
"""A file of results for each plot."""


def caption(name: str) -> str:
    """Return the text below a plot, on the one page that shows it."""
    pattern = re.compile(rf"\]\(\S*plots/{name}\.svg\)\n\n\*(.*?)\*\n", re.DOTALL)
    (found,) = [match[1] for path in (ROOT / "docs").rglob("*.md") for match in pattern.finditer(path.read_text())]
    return found


@pytest.mark.parametrize("path", sorted(PLOTS.iterdir()), ids=lambda path: path.stem)
def test_a_plot_says_how_and_when_it_was_made(path: Path) -> None:
    """With the target of make that measures, and the one that draws."""
    results = json.loads((RESULTS / f"{FILES[path.stem]}.json").read_text())
    text = caption(path.stem)

    assert re.search(r"`make (bench|faults) ARGS=", text)
    assert "`make plots`" in text
    assert results["when"].split()[0] in text
