"""Names of models: what is refused before an engine is loaded."""

from pathlib import Path

import pytest

from tokenwire.errors import NotFound
from tokenwire.model_source import check_model


@pytest.mark.parametrize("file", ["config.json", "params.json", "model-q4.gguf"])
def test_directories_with_a_model_are_taken(tmp_path: Path, file: str) -> None:
    """Whoever described it."""
    (tmp_path / file).touch()

    check_model(str(tmp_path))


@pytest.mark.parametrize("model", ["gpt2", "Qwen/Qwen3-8B", "org/name.with-dots_1", "s3://bucket/a/model"])
def test_what_may_be_elsewhere_is_taken(model: str) -> None:
    """Ids of hubs, and URLs."""
    check_model(model)


@pytest.mark.parametrize("model", ["/no/such/model", "./nothing", "../nothing", "~/model", "a/b/c", "a model"])
def test_paths_to_nothing_are_refused(model: str) -> None:
    """What can be no hub id is a path."""
    with pytest.raises(NotFound, match="There is no model at"):
        check_model(model)


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    """With what is missing."""
    with pytest.raises(NotFound, match=r"holds no model: it has no config\.json"):
        check_model(str(tmp_path))
