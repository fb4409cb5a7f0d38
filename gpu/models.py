"""The models that steps serve: the embedded one, and ones with random weights of the shapes that clusters serve."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME

SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "llama-1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
    "llama-tiny": {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
    },
}
_WITHOUT = shutil.ignore_patterns("*.safetensors", "config.json")


@dataclass(frozen=True, slots=True)
class KitModel:
    """A model's directory, and its name in requests."""

    name: str
    folder: Path
    random: bool = False
    """Whether it has no weights of its own: the engine makes them up."""

    @property
    def load_arguments(self) -> tuple[str, ...]:
        """The engine arguments that it needs."""
        return ("--load-format", "dummy") if self.random else ()


def embedded(folder: Path) -> KitModel:
    """Return the small model, which writes sentences."""
    return KitModel(EMBEDDED_MODEL_NAME, folder)


def random_model(shape: str, tokenizer: Path, parent: Path) -> KitModel:
    """Return a model without weights that has another one's tokenizer; makes its directory below `parent`."""
    folder = parent / shape
    shutil.copytree(tokenizer, folder, ignore=_WITHOUT, dirs_exist_ok=True)
    config = json.loads((tokenizer / "config.json").read_text()) | SHAPES[shape] | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    return KitModel(shape, folder, random=True)
