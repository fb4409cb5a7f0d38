"""Finds the vision model, made in a minute where it is missing."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.cache import kept_model
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

VISION_MODEL_NAME = "vision-model"


@cache
def vision_model() -> Path:
    """Return the model's directory: random layers, and the embedded model's tokenizer with tokens for pictures."""
    return kept_model(Path(__file__).parent, VISION_MODEL_NAME, _make)


def _make(parent: Path) -> Path:
    embedded, folder = prepare_embedded_model(default_cache_dir(), lambda _: None), parent / VISION_MODEL_NAME
    # In a process of its own: it imports torch and transformers, which tests do without.
    subprocess.run(
        [sys.executable, "-m", "tests.vision_model.build", str(embedded), str(folder)],
        check=True,
        capture_output=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return folder
