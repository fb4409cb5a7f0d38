"""Writes a tokenizer's files to temporary folders from which libraries load them."""

import base64
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tokenwire.coordinator.parsing.message import ParserUnusable

_FOLDER_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"


@contextmanager
def folder_of(files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a temporary folder with these files. Raises ParserUnusable for a name outside of it."""
    with tempfile.TemporaryDirectory(prefix="tokenwire-") as folder:
        for name, content in files.items():
            path = Path(folder) / name
            if not path.resolve().is_relative_to(Path(folder).resolve()):
                raise ParserUnusable(f"The tokenizer has a file outside of its folder: {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield folder


@contextmanager
def harmony_vocabulary(files: Mapping[str, bytes]) -> Iterator[None]:
    """Provide openai_harmony with gpt-oss's vocabulary, made from the tokenizer instead of downloaded, in the block.

    An operator's own folder takes precedence. The library checks the file's digest: no other model's tokenizer
    is accepted.
    """
    if _FOLDER_VARIABLE in os.environ:
        yield
        return
    with folder_of({"o200k_base.tiktoken": tiktoken_file(files["tokenizer.json"])}) as folder:
        os.environ[_FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER_VARIABLE]


def tiktoken_file(tokenizer_json: bytes) -> bytes:
    """Return a byte-level BPE vocabulary in tiktoken's format: base64 of each token's bytes and its rank, by rank."""
    byte_of = _bytes_by_character()
    vocabulary: dict[str, int] = json.loads(tokenizer_json)["model"]["vocab"]
    lines = [
        base64.b64encode(bytes(byte_of[character] for character in token)) + b" %d\n" % rank
        for token, rank in sorted(vocabulary.items(), key=lambda item: item[1])
    ]
    return b"".join(lines)


def _bytes_by_character() -> dict[str, int]:
    # GPT-2's table: printable bytes map to themselves, the others to characters from 256 on.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
