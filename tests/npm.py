"""Packages of the npm registry, fetched for tests."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest


def fetch_npm(package: str, folder: Path) -> None:
    """Unpack a package, without those that it depends on, into package/ of a folder; skips the test if npm cannot."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", package, "--silent", "--pack-destination", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if result.returncode:
        pytest.skip(f"{package} cannot be fetched: {result.stderr[-300:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
