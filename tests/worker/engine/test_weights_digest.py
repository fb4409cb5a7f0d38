"""The digest of a checkpoint changes with any training of it, and not with who saved it."""

import json
import struct
from pathlib import Path

import pytest

from tokenwire.worker.engine.weights_digest import weights_digest

TENSORS = {"embed": bytes(4000), "layers.0": bytes(range(256)) * 20, "head": b"\1" * 1000}


def save(folder: Path, tensors: dict[str, bytes] = TENSORS, name: str = "model.safetensors", **config: object) -> Path:
    """Write a checkpoint; return its directory."""
    folder.mkdir(exist_ok=True)
    header, end = {}, 0
    for tensor, data in tensors.items():
        header[tensor] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [end, end + len(data)]}
        end += len(data)
    encoded = json.dumps(header).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(encoded)) + encoded + b"".join(tensors.values()))
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4, **config}))
    return folder


def test_equal_checkpoints_have_equal_digests(tmp_path: Path) -> None:
    """Whatever the directory is called, and whichever version of a library saved it."""
    one = save(tmp_path / "one", transformers_version="4")
    other = save(tmp_path / "other", transformers_version="5", _name_or_path="x")
    assert weights_digest(one) == weights_digest(other)
    assert len(weights_digest(one)) == 64


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("place", [0, 0.5, -1])
def test_each_tensor_counts(tmp_path: Path, tensor: str, place: float) -> None:
    """At its beginning, in its middle and at its end."""
    data = bytearray(TENSORS[tensor])
    data[int(place * len(data))] ^= 1
    changed = save(tmp_path / "changed", {**TENSORS, tensor: bytes(data)})
    assert weights_digest(changed) != weights_digest(save(tmp_path / "one"))


def test_the_configuration_counts(tmp_path: Path) -> None:
    """The same numbers compute something else with it."""
    assert weights_digest(save(tmp_path / "one", rope_theta=1)) != weights_digest(save(tmp_path / "other"))


def test_all_shards_count(tmp_path: Path) -> None:
    """As files of safetensors do, but not others beside them."""
    one = save(tmp_path / "one")
    before = weights_digest(one)
    (one / "optimizer.bin").write_bytes(b"not read by any engine")
    assert weights_digest(one) == before
    assert weights_digest(save(one, {"more": b"1"}, "model-2.safetensors")) != before


@pytest.mark.parametrize("place", [0, 128 * 3907, 999_999])
def test_other_formats_are_sampled_evenly(tmp_path: Path, place: int) -> None:
    """Such as one file of GGUF, which has no directory of its own."""
    data = bytearray(1_000_000)
    one, other = tmp_path / "one.gguf", tmp_path / "other" / "one.gguf"
    one.write_bytes(data)
    data[place] = 1
    other.parent.mkdir()
    other.write_bytes(data)
    assert weights_digest(one) != weights_digest(other)


def test_what_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    """The worker still starts: its weights are not known."""
    assert weights_digest(tmp_path / "missing") == ""
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    assert weights_digest(tmp_path) == ""
