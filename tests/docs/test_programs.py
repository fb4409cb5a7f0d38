"""Every documented `make TARGET` and `python -m MODULE` runs here if it is short, or there is a reason and its time."""

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, Command
from tests.docs.not_run import LONG
from tests.docs.test_commands import PYTHON, of, ran_by_make

pytestmark = pytest.mark.ci

SHORT = {
    "make plots": ("docs/plots",),
    "make reference": ("docs/reference", "deploy/k8s/tokenwire"),
    "python -m benchmarks.system_calls": (),
    "python -m benchmarks.walk": (),
    "python -m scripts.dashboard": (),
    "python -m tests.coordinator.parsing.parsers_page": ("docs/reference",),
}
"""Those that run here, on a copy of the tree, with the folders that they write as they are."""
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "node_modules", "shared", "site", "local")


def documented() -> dict[str, Command]:
    """Return the commands, by what a reader types."""
    found = [each for name in ("make", *PYTHON) for each in of(name) if len(each.words) > 1]
    shown = [each for each in found if each.program == "make" or each.words[1] == "-m"]
    return {" ".join([each.program.replace("python3", "python"), *each.words[1:]]): each for each in shown}


def test_every_program_is_run_or_takes_long() -> None:
    """A new one needs a place in one of the lists; one that the documents drop loses it."""
    listed = [*SHORT, *(text for texts in LONG.values() for text in texts)]

    assert sorted(listed) == sorted(documented())


@pytest.mark.slow
@pytest.mark.parametrize("text", SHORT)
def test_a_short_program_succeeds(text: str, tmp_path: Path) -> None:
    """What it writes is what the repository has."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
    command = documented()[text]
    steps = [each for each in ran_by_make(command) if each.program == "python"] if "make " in text else [command]
    assert steps
    for each in steps:
        done = subprocess.run(
            [sys.executable, *each.words[1:]],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    for folder in SHORT[text]:
        names = [path.name for path in (ROOT / folder).iterdir() if path.is_file() and path.name[0] != "."]
        assert filecmp.cmpfiles(ROOT / folder, tree / folder, names, shallow=False)[1:] == ([], [])
