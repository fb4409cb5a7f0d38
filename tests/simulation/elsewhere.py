"""Runs of another tree than this one, in processes of their own: a copy that somebody has changed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ignored = shutil.ignore_patterns("__pycache__", ".cache")
"""What copies of the tree leave out."""
_FOUND = re.compile(r"^seed (?P<seed>\d+):.*\n    (?:[\d.]+ )?(?P<violation>.*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """What failed, and in the run of which seed."""

    seed: int
    what: str


def first_violation(
    folder: Path,
    seeds: int,
    processes: int = 1,
    first: int = 0,
    environment: Mapping[str, str] = os.environ,
    timeout_s: float | None = None,
) -> FoundViolation | None:
    """Simulate runs of the tree in a folder, from seed `first` on, until one fails; None: none did.

    Raises RuntimeError if the command itself fails, and subprocess.TimeoutExpired.
    """
    command = [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds), "--processes", str(processes), "--stop"]
    command += ["--first", str(first)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    if found := _FOUND.search(done.stdout):
        return FoundViolation(int(found["seed"]), found["violation"])
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])
    return None
