"""A checkpoint with other weights, for proofs that an engine's weights were replaced."""

import shutil
from pathlib import Path

_PERTURBED = ".mlp.down_proj.weight"
_SCALE = 0.5


def perturb(source: Path, target: Path) -> list[str]:
    """Write a copy with noise in some parameters, the same each time; return the names of these."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    generator = torch.Generator().manual_seed(7)
    perturbed: list[str] = []
    for path in sorted(source.glob("*.safetensors")):
        tensors = load_file(path)
        for name in sorted(tensors):
            if name.endswith(_PERTURBED):
                values = tensors[name].float()
                noise = torch.randn(values.shape, generator=generator) * values.std() * _SCALE
                tensors[name] = (values + noise).to(tensors[name].dtype)
                perturbed.append(name)
        save_file(tensors, target / path.name, metadata={"format": "pt"})
    return perturbed
