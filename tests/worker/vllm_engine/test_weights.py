"""The digest of what vLLM loaded: of the files where there are any, else of their name."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.lazily import Lazily
from tokenwire.worker.engine.weights_digest import weights_digest

weights = Lazily("tokenwire.worker.vllm_engine.weights")


def digest(model: str, load_format: str = "auto", download_dir: Path | None = None, **fields: Any) -> str:
    """Return the digest for the fields of vLLM's configuration that matter."""
    given = {"model": model, "model_weights": "", "revision": None, "seed": 0, "hf_overrides": {}, **fields}
    load = SimpleNamespace(load_format=load_format, download_dir=download_dir)
    config = SimpleNamespace(model_config=SimpleNamespace(**given), load_config=load)
    return str(weights.weights_digest_of(config))


def checkpoint(folder: Path) -> Path:
    """Write a checkpoint of an old format."""
    folder.mkdir(parents=True)
    (folder / "pytorch_model.bin").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    return folder


def test_a_directory_and_its_copy_in_the_hub_cache_are_the_same(tmp_path: Path) -> None:
    """The digest is that of the files."""
    folder = checkpoint(tmp_path / "model")
    commit = "0" * 40
    snapshot = checkpoint(tmp_path / "hub" / "models--org--model" / "snapshots" / commit)
    refs = tmp_path / "hub" / "models--org--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    assert digest(str(folder)) == weights_digest(folder) == weights_digest(snapshot)
    assert digest("org/model", download_dir=tmp_path / "hub") == weights_digest(folder)


def test_what_vllm_is_told_to_change_counts(tmp_path: Path) -> None:
    """Overrides of the configuration are not in any file."""
    folder = str(checkpoint(tmp_path / "model"))
    assert digest(folder, hf_overrides={"rope_theta": 1}) != digest(folder)
    assert digest(folder, hf_overrides={"rope_theta": 1}) == digest(folder, hf_overrides={"rope_theta": 1})


def test_weights_without_files_have_the_digest_of_their_name(tmp_path: Path) -> None:
    """And of the revision that was asked for; random ones have that of their seed."""
    stream = digest("s3://bucket/model", download_dir=tmp_path)
    assert stream == digest("s3://bucket/model", download_dir=tmp_path, seed=3)
    assert stream != digest("s3://bucket/other", download_dir=tmp_path)
    assert digest("org/model", download_dir=tmp_path, revision="v2") != digest("org/model", download_dir=tmp_path)
    folder = str(checkpoint(tmp_path / "model"))
    assert digest(folder, "dummy") != digest(folder)
    assert digest(folder, "dummy", seed=1) != digest(folder, "dummy", seed=2)
