"""Makes a cross encoder and a classifier, with the embedding model's tokenizer, each in a second."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.cache import kept_model
from tests.lazily import Lazily
from tokenwire.worker.vllm_engine.embedded_model import find_embedding_model

np = Lazily("numpy")
safetensors = Lazily("safetensors.numpy")

CLASSES = ("negative", "neutral", "positive")
_HIDDEN, _INNER, _LAYERS = 64, 128, 2
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


@cache
def cross_encoder() -> Path:
    """Return the directory of a model that scores pairs of texts."""
    return kept_model(Path(__file__).parent, "cross-encoder", lambda parent: _make(parent / "cross-encoder", ["score"]))


@cache
def classifier() -> Path:
    """Return the directory of a model with three classes."""
    return kept_model(Path(__file__).parent, "classifier", lambda parent: _make(parent / "classifier", CLASSES))


def _make(folder: Path, labels: Any) -> Path:
    source = find_embedding_model()
    folder.mkdir()
    for name in _TOKENIZER:
        shutil.copy(source / name, folder)
    config = json.loads((source / "config.json").read_text()) | {
        **{"architectures": ["BertForSequenceClassification"], "hidden_size": _HIDDEN, "intermediate_size": _INNER},
        **{"num_hidden_layers": _LAYERS, "num_attention_heads": 2},
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(_weights(config, len(labels)), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(config: dict[str, Any], labels: int) -> dict[str, Any]:
    draw = np.random.default_rng(7)
    shapes: dict[str, tuple[int, int]] = {"bert.pooler.dense": (_HIDDEN, _HIDDEN), "classifier": (labels, _HIDDEN)}
    norms = ["bert.embeddings.LayerNorm"]
    for number in range(_LAYERS):
        layer = f"bert.encoder.layer.{number}"
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"{layer}.{name}"] = (_HIDDEN, _HIDDEN)
        shapes |= {f"{layer}.intermediate.dense": (_INNER, _HIDDEN), f"{layer}.output.dense": (_HIDDEN, _INNER)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    weights = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = draw.standard_normal(shape, np.float32) / np.float32(shape[1] ** 0.5)
        weights[f"{name}.bias"] = draw.standard_normal(shape[0], np.float32) / np.float32(10)
    for name in norms:
        weights[f"{name}.weight"] = draw.uniform(0.8, 1.2, _HIDDEN).astype(np.float32)
        weights[f"{name}.bias"] = np.zeros(_HIDDEN, np.float32)
    tables = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for kind, size in tables.items():
        weights[f"bert.embeddings.{kind}_embeddings.weight"] = draw.standard_normal((config[size], _HIDDEN), np.float32)
    return weights
