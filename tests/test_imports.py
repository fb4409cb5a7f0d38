"""The import contracts of pyproject.toml's [tool.importlinter]."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINTER = [
    sys.executable,
    "-c",
    "from importlinter.cli import lint_imports_command; lint_imports_command()",
    "--no-cache",
]


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check a folder's package against the project's contracts."""
    command = [*LINTER, "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_contracts_are_kept() -> None:
    """Text and fleet are independent, coordinator and worker too; nothing imports from a layer above."""
    checked = lint(ROOT)

    assert checked.returncode == 0, checked.stdout


FORBIDDEN = {
    "The command line imports both halves": ("coordinator/app.py", "tokenwire.worker.engine"),
    "Packages of the coordinator": ("coordinator/text/stops.py", "tokenwire.coordinator.fleet.slots"),
    "Packages have no import cycles": ("coordinator/api/fields/finish.py", "tokenwire.coordinator.api.errors"),
    "The fleet handles token ids": ("coordinator/fleet/slots.py", "tokenwire.coordinator.text.stops"),
    "Only the API": ("coordinator/generation/limits.py", "fastapi"),
    "Output is written": ("coordinator/output/sse.py", "socket"),
    "Only vLLM's parsers": ("coordinator/text/tokenizer.py", "transformers"),
}
"""A module for each contract, and a forbidden import."""


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    """One line breaks each contract, so none of them passes because it checks nothing."""
    for name in ("tokenwire", "coordinator", "worker"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for module, imported in FORBIDDEN.values():
        path = tmp_path / module
        path.write_text(f"{path.read_text()}\nimport {imported}\n")

    checked = lint(tmp_path)

    broken = checked.stdout.partition("Broken contracts")[2]
    assert checked.returncode == 1
    assert not [contract for contract in FORBIDDEN if contract not in broken], checked.stdout
