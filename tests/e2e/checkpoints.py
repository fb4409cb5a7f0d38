"""Checkpoints derived from the embedded model: other weights, and a small adapter."""

import json
import random
import shutil
import struct
from pathlib import Path

_HIDDEN = 576
_LAYERS = 30
_RANK = 4


def changed_weights(model: Path, folder: Path) -> Path:
    """Copy a model with the values of its last norm permuted; return the folder."""
    folder.mkdir()
    for path in model.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, folder)
    data = bytearray((model / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    start, end = json.loads(data[8 : 8 + length])["model.norm.weight"]["data_offsets"]
    norm = slice(8 + length + start, 8 + length + end)
    values = [data[norm][i : i + 2] for i in range(0, end - start, 2)]
    random.Random(7).shuffle(values)
    data[norm] = b"".join(values)
    (folder / "model.safetensors").write_bytes(data)
    return folder


def adapter(folder: Path, seed: int = 7) -> Path:
    """Write a random LoRA adapter for the embedded model's query projections, in peft's format; return the folder."""
    folder.mkdir()
    config = {"peft_type": "LORA", "r": _RANK, "lora_alpha": 64, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    rng = random.Random(seed)
    header: dict[str, object] = {}
    data = bytearray()
    for layer in range(_LAYERS):
        for name, shape in (("lora_A", (_RANK, _HIDDEN)), ("lora_B", (_HIDDEN, _RANK))):
            count = _RANK * _HIDDEN
            tensor = struct.pack(f"<{count}f", *(rng.gauss(0, 0.2) for _ in range(count)))
            key = f"base_model.model.model.layers.{layer}.self_attn.q_proj.{name}.weight"
            header[key] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(tensor)]}
            data += tensor
    encoded = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    return folder
