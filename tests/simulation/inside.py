"""Runs code in a process that simulates: the clocks of this one are in use by its tests."""

import os
import subprocess
import sys
import textwrap


def run_inside(code: str, hash_seed: int = 0) -> str:
    """Run code in a new process after the clocks were replaced; return what it printed. Raises AssertionError."""
    program = "from tests.simulation import chance\n" + textwrap.dedent(code)
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout
