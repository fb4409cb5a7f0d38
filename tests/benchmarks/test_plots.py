"""The plots of the documentation are those of the committed results."""

import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks import plots

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", plots.DRAWN)
def test_a_plot_is_current(name: str) -> None:
    """After new results: `make plots`. The same results give the same file."""
    assert (plots.PLOTS / f"{name}.svg").read_text() == plots.drawn(name)


def test_no_other_plots_are_kept() -> None:
    """Each file has results that it is drawn from."""
    assert {path.stem for path in plots.PLOTS.iterdir()} == {*plots.DRAWN, "gpu"}  # that one: tests/gpu


def test_other_results_give_another_plot(tmp_path: Path) -> None:
    """It shows the results, not constants."""
    shutil.copytree(plots.RESULTS, tmp_path / "results")
    path = tmp_path / "results" / "soak.json"
    soak = json.loads(path.read_text())
    soak["soak"][-1]["coordinator_mb"] += 50
    path.write_text(json.dumps(soak))

    assert plots.drawn("memory", tmp_path / "results") != plots.drawn("memory")


@pytest.mark.parametrize("path", sorted(plots.PLOTS.iterdir()), ids=lambda path: path.stem)
def test_a_plot_is_read_on_light_and_on_dark_pages(path: Path) -> None:
    """Text and axes change their color with the page's, which is the background: nothing is white, or always black."""
    text = path.read_text()

    assert "@media (prefers-color-scheme: dark) {svg {color: " in text
    assert text.count(": currentColor") > 20
    assert re.findall(r'(?:fill|stroke): #(?:f{6}|0{6})|<text style="(?![^"]*fill: currentColor)', text) == []
