"""Bar: the other checkpoint differs where it should, in the same way each time."""

from pathlib import Path

import pytest

from gpu.perturbed import perturb

pytestmark = pytest.mark.engine  # it imports torch


def test_only_some_parameters_differ(tmp_path: Path) -> None:
    """Those named; and two copies are equal to the last bit."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    source = tmp_path / "model"
    source.mkdir()
    (source / "config.json").write_text("{}")
    changed = "model.layers.0.mlp.down_proj.weight"
    kept = "model.layers.0.mlp.up_proj.weight"
    values = torch.linspace(-1, 1, 12).reshape(3, 4).bfloat16()
    save_file({changed: values, kept: values.clone()}, source / "model.safetensors")

    assert perturb(source, tmp_path / "one") == [changed]
    perturb(source, tmp_path / "two")

    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert (tmp_path / "one" / "config.json").exists()
    assert not torch.equal(one[changed], values)
    assert one[changed].dtype == values.dtype
    assert torch.equal(one[changed], two[changed])
    assert torch.equal(one[kept], values)
