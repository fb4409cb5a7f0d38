"""Finds the vision models, each made in a minute where it is missing."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.cache import kept_model
from tests.torchvision import torchvision_environment
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model


@cache
def vision_model() -> Path:
    """Return the Idefics3 model's directory: random layers, and the embedded model's tokenizer with more tokens."""
    return kept_model(Path(__file__).parent, "idefics3", lambda parent: _make(parent / "idefics3", {}))


@cache
def qwen_vision_model() -> Path:
    """Return the Qwen2.5-VL model's directory, likewise. Whatever loads it needs `torchvision_environment`."""
    name, environment = "qwen2_5_vl", torchvision_environment()
    return kept_model(Path(__file__).parent, name, lambda parent: _make(parent / name, environment))


def _make(folder: Path, environment: Mapping[str, str]) -> Path:
    embedded = prepare_embedded_model(default_cache_dir(), lambda _: None)
    # In a process of its own: it imports torch and transformers, which tests do without.
    subprocess.run(
        [sys.executable, "-m", f"tests.vision_model.{folder.name}", str(embedded), str(folder)],
        check=True,
        capture_output=True,
        env={**os.environ, **environment, "HF_HUB_OFFLINE": "1"},
    )
    return folder
