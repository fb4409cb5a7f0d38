"""Checkpoints derived from a model: other weights, and a small adapter."""

import json
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

_RANK = 4
_BYTES = {"BF16": 2, "F32": 4}


def changed_weights(model: Path, folder: Path) -> Path:
    """Copy a model with the values of its last norm permuted; return the folder."""
    folder.mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    data = bytearray((model / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])["model.norm.weight"]
    start, end = header["data_offsets"]
    norm, size = slice(8 + length + start, 8 + length + end), _BYTES[header["dtype"]]
    values = [data[norm][i : i + size] for i in range(0, end - start, size)]
    random.Random(7).shuffle(values)
    data[norm] = b"".join(values)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def adapter(model: Path, folder: Path, seed: int = 7) -> Path:
    """Write a random LoRA adapter for the query projections of a model that generates, in peft's format."""
    sizes = json.loads((model / "config.json").read_text())
    queries = sizes["num_attention_heads"] * sizes["head_dim"]
    layers = [f"model.layers.{number}.self_attn.q_proj" for number in range(sizes["num_hidden_layers"])]
    return _write_adapter(folder, "q_proj", layers, (sizes["hidden_size"], queries), seed)


def embedding_adapter(model: Path, folder: Path, seed: int = 7) -> Path:
    """Write one for the query projections of a model of BERT's architecture."""
    sizes = json.loads((model / "config.json").read_text())
    hidden = sizes["hidden_size"]
    layers = [f"encoder.layer.{number}.attention.self.query" for number in range(sizes["num_hidden_layers"])]
    return _write_adapter(folder, "query", layers, (hidden, hidden), seed)


def _write_adapter(folder: Path, target: str, layers: Sequence[str], shape: tuple[int, int], seed: int) -> Path:
    """Write an adapter for the same projection of some layers, of an input and output size; return the folder."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": _RANK, "lora_alpha": 64, "target_modules": [target], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    rng = random.Random(seed)
    header: dict[str, object] = {}
    data = bytearray()
    for layer in layers:
        for name, sizes in (("lora_A", (_RANK, shape[0])), ("lora_B", (shape[1], _RANK))):
            count = sizes[0] * sizes[1]
            tensor = struct.pack(f"<{count}f", *(rng.gauss(0, 0.2) for _ in range(count)))
            key = f"base_model.model.{layer}.{name}.weight"
            header[key] = {"dtype": "F32", "shape": sizes, "data_offsets": [len(data), len(data) + len(tensor)]}
            data += tensor
    encoded = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    return folder
