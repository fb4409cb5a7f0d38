"""What was missing fails a run of continuous integration, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_TESTS = """
import pytest

def test_needs_a_package():
    pytest.importorskip("a_package_that_nobody_has")

def test_needs_a_tokenizer():
    pytest.skip("@lenml/tokenizer-x cannot be fetched: 404")

def test_needs_a_browser():
    pytest.skip("needs Chromium")
"""


@pytest.mark.parametrize(
    ("ci", "name", "code"),
    [("true", "package or tokenizer", 1), ("", "package or tokenizer", 0), ("true", "browser", 0)],
)
def test_what_is_missing_fails_in_ci(tmp_path: Path, ci: str, name: str, code: int) -> None:
    """A package or a download, that is; what the machine may lack is skipped. Either way the summary counts it."""
    (tmp_path / "test_some.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "tests.skips", "-k", name, str(tmp_path)]
    root = Path(__file__).parent.parent
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={**os.environ, "CI": ci, "PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == code, run.stdout
    counted = [line for line in run.stdout.splitlines() if line.startswith("1 skipped, ")]
    assert len(counted) == (0 if name == "browser" else 2), run.stdout
