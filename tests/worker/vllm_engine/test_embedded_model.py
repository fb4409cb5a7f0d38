"""The embedded model is prepared once, however many processes need it; errors name the remedy."""

import fcntl
import json
import queue
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tokenwire.errors import EngineFailed
from tokenwire.worker.vllm_engine.embedded_model import (
    EMBEDDED_MODEL_NAME,
    find_embedding_model,
    find_gguf,
    prepare_embedded_model,
)


def silent(_: str) -> None:
    """Discard a progress message."""


def lay_out(cache_dir: Path) -> Path:
    """Create a directory that looks like a prepared model."""
    target = cache_dir / "models" / EMBEDDED_MODEL_NAME
    target.mkdir(parents=True)
    (target / "model.safetensors").write_bytes(b"weights")
    return target


def test_a_prepared_model_is_reused(tmp_path: Path) -> None:
    """It is returned at once, unchanged and without a progress message."""
    target = lay_out(tmp_path)
    messages: list[str] = []
    assert prepare_embedded_model(tmp_path, messages.append) == target
    assert messages == []
    assert (target / "model.safetensors").read_bytes() == b"weights"


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """While another process prepares the model, this one reports that it waits, and then uses the other's result."""
    pytest.importorskip("gguf")
    messages: queue.Queue[str] = queue.Queue()
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / f"{EMBEDDED_MODEL_NAME}.lock").open("w") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = pool.submit(prepare_embedded_model, tmp_path, messages.put)
        assert "waiting" in messages.get(timeout=10)
        target = lay_out(tmp_path)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert second.result(timeout=10) == target
    assert messages.empty()


def test_an_unusable_cache_directory_is_reported(tmp_path: Path) -> None:
    """The error names the directory and the environment variable that sets another."""
    pytest.importorskip("gguf")
    (tmp_path / "models").write_text("a file where the directory should be")
    with pytest.raises(EngineFailed) as failed:
        prepare_embedded_model(tmp_path, silent)
    assert str(tmp_path) in failed.value.message
    assert "TOKENWIRE_CACHE_DIR" in failed.value.message


def test_a_missing_package_is_reported_with_its_command() -> None:
    """Without the package that contains the model, the error has the command that installs it."""
    with pytest.raises(EngineFailed, match=r"`make serve` in a checkout"):
        find_gguf("no_such_package_anywhere")


@pytest.mark.engine
@pytest.mark.long
def test_two_processes_prepare_one_complete_model(tmp_path: Path) -> None:
    """Two processes that start together both get the complete model, with no leftovers of theirs or of a crash."""
    crashed = tmp_path / "models" / f"{EMBEDDED_MODEL_NAME}.partial"
    crashed.mkdir(parents=True)
    (crashed / "model.safetensors").write_bytes(b"half")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        first, second = (pool.submit(prepare_embedded_model, tmp_path, silent) for _ in range(2))
        target = first.result()
        assert second.result() == target == tmp_path / "models" / EMBEDDED_MODEL_NAME
    assert {path.name for path in (tmp_path / "models").iterdir()} == {target.name, f"{target.name}.lock"}
    config = json.loads((target / "config.json").read_text())
    assert "quantization_config" not in config
    generation = json.loads((target / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["temperature"], generation["top_p"]) == (2, 0.2, 0.9)
    tokenizer = json.loads((target / "tokenizer_config.json").read_text())
    assert (tokenizer["eos_token"], tokenizer["model_max_length"]) == ("<|im_end|>", config["max_position_embeddings"])
    assert "add_generation_prompt" in (target / "chat_template.jinja").read_text()
    assert (target / "model.safetensors").stat().st_size > 250 * 2**20


def test_the_embedding_model_is_served_from_its_package() -> None:
    """As it is; without the package the error names what installs it."""
    folder = find_embedding_model()

    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    with pytest.raises(EngineFailed, match="make serve"):
        find_embedding_model("tokenwire_has_no_such_package")
