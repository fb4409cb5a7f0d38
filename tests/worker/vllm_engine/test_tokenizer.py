"""The engine's tokenizer becomes files that rebuild it, whatever state it is in."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from tests.lazily import Lazily
from tokenwire.errors import EngineFailed

tokenizer = Lazily("tokenwire.worker.vllm_engine.tokenizer")

pytestmark = pytest.mark.engine


def loaded(**attributes: Any) -> Any:
    """Return what transformers makes of a tokenizer with two special tokens."""
    backend = Tokenizer(models.WordLevel({"a": 0, "<eos>": 1, "<x>": 2, "<none>": 3}, unk_token="<none>"))
    usual = {
        "backend_tokenizer": backend,
        "special_tokens_map": {"eos_token": "<eos>", "pad_token": None},
        "all_special_tokens": ["<eos>", "<x>"],
        "chat_template": None,
    }
    return SimpleNamespace(**{**usual, **attributes})


def config_of(made: Any) -> dict[str, Any]:
    """Return the configuration among a tokenizer's files."""
    config: dict[str, Any] = json.loads(tokenizer.tokenizer_files(made, "llama")["tokenizer_config.json"])
    return config


def test_special_tokens_are_named() -> None:
    """Those that have a role under it, the others beside them."""
    config = config_of(loaded())

    assert (config["eos_token"], config["additional_special_tokens"]) == ("<eos>", ["<x>"])
    assert "pad_token" not in config
    assert "chat_template" not in config


def test_files_do_not_depend_on_earlier_calls() -> None:
    """A call with truncation or padding leaves it behind; peers compare a digest of the files."""
    used = loaded()
    before = tokenizer.tokenizer_files(used, "llama")
    used.backend_tokenizer.enable_truncation(3)
    used.backend_tokenizer.enable_padding()

    assert tokenizer.tokenizer_files(used, "llama") == before
    assert used.backend_tokenizer.truncation["max_length"] == 3


def test_templates_with_names_are_sorted() -> None:
    """As transformers saves them, in one order."""
    assert config_of(loaded(chat_template="one"))["chat_template"] == "one"
    assert config_of(loaded(chat_template={"b": "2", "a": "1"}))["chat_template"] == [
        {"name": "a", "template": "1"},
        {"name": "b", "template": "2"},
    ]


def test_a_tokenizer_without_a_file_is_refused() -> None:
    """Coordinators could not rebuild it; the error names its kind and a remedy."""
    with pytest.raises(EngineFailed, match=r"SimpleNamespace.*--tokenizer-mode hf"):
        tokenizer.tokenizer_files(loaded(backend_tokenizer=None), "llama")
