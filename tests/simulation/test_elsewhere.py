"""Runs of another tree are read for the first violation, whatever it is."""

from pathlib import Path

import pytest

from tests.simulation.elsewhere import FoundViolation, first_violation

_RESULT = "seed 7: 12.0 virtual s, 5 callbacks, trace 00, {}"


def _tree(folder: Path, shown: str, code: int) -> Path:
    """Write a tree whose simulation shows this and exits with this code."""
    package = folder / "tests" / "simulation"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").write_text("")
    (package / "__main__.py").write_text(f"import sys\n\nprint({shown!r})\nsys.exit({code})\n")
    return folder


@pytest.mark.parametrize("when", ["3.250 ", "uncaught: "])
def test_a_violation_is_found_with_its_seed(tmp_path: Path, when: str) -> None:
    """Those of the whole run have no time."""
    tree = _tree(tmp_path, f"{_RESULT}\n    {when}c0 is wrong\n    9.000 another one", 1)
    what = when.removeprefix("3.250 ") + "c0 is wrong"
    assert first_violation(tree, 10) == FoundViolation(7, what)


def test_runs_without_a_violation_find_nothing(tmp_path: Path) -> None:
    """The summary is none."""
    assert first_violation(_tree(tmp_path, "\n10 runs, 0 failed", 0), 10) is None


def test_a_command_that_fails_by_itself_is_no_violation(tmp_path: Path) -> None:
    """It raises instead."""
    with pytest.raises(RuntimeError):
        first_violation(_tree(tmp_path, "no such option", 2), 10)
