"""Files of tokenizers in temporary folders."""

import base64
import json
import os

import pytest

from tokenwire.coordinator.parsing.folders import folder_of, harmony_vocabulary, tiktoken_file
from tokenwire.coordinator.parsing.message import ParserUnusable


def test_files_are_written_inside_their_folder() -> None:
    """A worker's file names cannot lead out of it, and the folder is removed."""
    with folder_of({"a/b.jinja": b"x"}) as folder:
        assert os.path.exists(f"{folder}/a/b.jinja")
    assert not os.path.exists(folder)
    with pytest.raises(ParserUnusable, match="outside"), folder_of({"../x": b""}):
        pass


def test_vocabularies_become_tiktoken_files() -> None:
    """Bytes in base64, by rank."""
    tokenizer = json.dumps({"model": {"vocab": {"Ġa": 1, "Ã©": 0}}}).encode()
    expected = [base64.b64encode("é".encode()) + b" 0", base64.b64encode(b" a") + b" 1", b""]
    assert tiktoken_file(tokenizer).split(b"\n") == expected
    with harmony_vocabulary({"tokenizer.json": tokenizer}):
        folder = os.environ["TIKTOKEN_ENCODINGS_BASE"]
        assert os.path.exists(f"{folder}/o200k_base.tiktoken")
    assert os.environ.get("TIKTOKEN_ENCODINGS_BASE") != folder
