"""The model of a plain vLLM server is described by the server and by the model's directory."""

import json
from pathlib import Path
from typing import Any

import pytest

from tokenwire.coordinator.fleet.transport.vllm_http.model_info import ModelDirectoryConfig, read_config
from tokenwire.errors import InvalidRequest, Unavailable

LISTED = {"data": [{"id": "m", "root": "/m", "max_model_len": 512}, {"id": "alias"}, {"id": "red", "parent": "m"}]}


def config(folder: Path, generation: dict[str, Any] | None = None, **config: Any) -> ModelDirectoryConfig:
    """Return the configuration of a directory with these files."""
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return ModelDirectoryConfig(folder)


def test_names_and_length_are_the_servers_and_the_rest_the_directorys(tmp_path: Path) -> None:
    """Adapters are no names of the model; without a vocabulary no id is known."""
    made = config(tmp_path, {"temperature": 0.6, "max_new_tokens": 64, "bos_token_id": 1}, model_type="llama")
    model = made.describe(LISTED, "0.32.0")

    assert (list(model.names), model.root, model.max_model_len) == (["m", "alias"], "/m", 512)
    assert (model.model_type, model.architecture, model.max_token_id) == ("llama", "", 0)
    assert json.loads(model.default_sampling_params_json) == {"temperature": 0.6, "max_tokens": 64}
    assert model.tokenizer_digest == f"directory:{tmp_path}"


def test_the_text_part_of_a_multimodal_model_counts(tmp_path: Path) -> None:
    """For its vocabulary and its ends, those of the generation config among them."""
    made = config(tmp_path, {"eos_token_id": [3, 4]}, text_config={"vocab_size": 100, "eos_token_id": 2}, vocab_size=7)

    assert made.describe(LISTED, "1").max_token_id == 99
    assert made.eos_token_ids == {2, 3, 4}


def test_a_directory_without_configuration_is_taken(tmp_path: Path) -> None:
    """Only a file that cannot be read is an error."""
    assert ModelDirectoryConfig(tmp_path).eos_token_ids == frozenset()
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidRequest, match=r"cannot read .*config\.json"):
        ModelDirectoryConfig(tmp_path)


@pytest.mark.parametrize("listed", [{}, {"data": []}, {"data": [{"id": "m"}]}, {"data": [{"id": "r", "parent": "m"}]}])
def test_a_server_without_a_model_is_not_ready(tmp_path: Path, listed: dict[str, Any]) -> None:
    """Or without its length, as of other servers."""
    with pytest.raises(Unavailable, match="lists no model"):
        config(tmp_path).describe(listed, "1")


def test_only_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """One that is missing says nothing, nor does one that is no object."""
    assert read_config(tmp_path / "config.json") == {}
    (tmp_path / "config.json").write_text("[]")
    assert read_config(tmp_path / "config.json") == {}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InvalidRequest, match=r"cannot read .*config\.json"):
        read_config(tmp_path / "config.json")
