"""A copy of the tree in which mutmut mutates, since it finds no modules behind links."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.elsewhere import ignored

_COPIED = ("tokenwire", "tests", "proto")
_PACKAGE = "tokenwire"
_OPTIONS = ["-n", "0", "-p", "no:cacheprovider", "--timeout", "60"]
_FAST = "not engine and not npm and not slow and not ci and not long"
# Tests start gRPC, which survives no fork: each mutant is judged in a fork of a process that only collected tests.
_SETTINGS = """
[tool.mutmut]
source_paths = ["{package}"]
only_mutate = {modules}
also_copy = ["tests", "proto"]
pytest_add_cli_args = {options}
pytest_add_cli_args_test_selection = {judges}
process_isolation = "forkserver"
use_git_change_detection = false
timeout_constant = 5.0
timeout_multiplier = 3.0
"""
_GENERATE = """
from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants, setup_source_paths

copy_src_dir()
copy_also_copy_files()
setup_source_paths()
create_mutants({processes})
"""


def copy_tree(
    root: Path, folder: Path, modules: Sequence[str], judges: Sequence[str], left_out: Sequence[str] = ()
) -> None:
    """Copy what the tests need into a folder, with mutmut's settings for these modules and tests."""
    for name in ("tests", "mutants/tests"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)  # which tests reach which function
    for name in _COPIED:
        shutil.copytree(root / name, folder / name, dirs_exist_ok=True, ignore=ignored)
    paths = [in_package(each) for each in modules]
    options = [*_OPTIONS, "-m", _FAST, *(f"--ignore={each}" for each in left_out)]
    settings = _SETTINGS.format(package=_PACKAGE, modules=paths, judges=list(judges), options=options)
    (folder / "pyproject.toml").write_text((root / "pyproject.toml").read_text() + settings)
    (folder / "mutants").mkdir(exist_ok=True)


def in_package(module: str) -> str:
    """Return the path of a module as it is imported: the repository has links for coordinator/ and worker/."""
    return module if module.startswith(f"{_PACKAGE}/") else f"{_PACKAGE}/{module}"


def generate(folder: Path, processes: int) -> None:
    """Let mutmut write every mutant into the copy, beside its original."""
    subprocess.run(
        [sys.executable, "-c", _GENERATE.format(processes=processes)], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
