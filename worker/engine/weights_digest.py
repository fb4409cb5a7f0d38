"""The digest of a checkpoint, from a sample of its files: 100 GB take seconds, and any training changes it.

Sampled are the first, middle and last bytes of each tensor. Two checkpoints are not told apart if they differ only in
numbers that no sample reaches, such as a few rows of one matrix that were edited by hand.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_SAMPLE_BYTES = 64
_SPANS_OF_OTHER_FILES = 256
_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_OTHER_FILES = (".bin", ".pt", ".pth", ".gguf")
_VOLATILE = ("_name_or_path", "transformers_version")
"""Fields of config.json that say who saved it."""

_Span = tuple[int, int]
"""Offset and length of a part of a file."""


def weights_digest(checkpoint: Path) -> str:
    """Return the SHA-256, in hex, of a checkpoint's directory or its only file; empty if it cannot be read."""
    try:
        files = _weight_files(checkpoint)
        if not files:
            return ""
        total = hashlib.sha256(_configuration(checkpoint))
        for file in files:
            _add_file(total, file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("the weights in %s have no digest, so workers cannot be told apart by it: %s", checkpoint, error)
        return ""
    return total.hexdigest()


def _weight_files(checkpoint: Path) -> list[Path]:
    """Return the files that an engine reads: safetensors, where there are any."""
    if checkpoint.is_file():
        return [checkpoint]
    files = sorted(each for each in checkpoint.iterdir() if each.is_file()) if checkpoint.is_dir() else []
    safetensors = [each for each in files if each.suffix == ".safetensors"]
    return safetensors or [each for each in files if each.suffix in _OTHER_FILES]


def _configuration(checkpoint: Path) -> bytes:
    try:
        config = json.loads((checkpoint / "config.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return b""
    return json.dumps({key: config[key] for key in config if key not in _VOLATILE}, sort_keys=True).encode()


def _add_file(total: Any, path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        total.update(f"\0{path.name}\0{size}\0".encode())
        for offset, length in _tensors(total, descriptor) if path.suffix == ".safetensors" else _spans(size):
            for start in (offset, offset + length // 2, max(offset, offset + length - _SAMPLE_BYTES)):
                total.update(os.pread(descriptor, min(_SAMPLE_BYTES, offset + length - start), start))


def _tensors(total: Any, descriptor: int) -> Iterator[_Span]:
    """Add the header of a safetensors file, and yield where its tensors are."""
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if not 0 < length <= _MAX_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes is not one of safetensors")
    header = os.pread(descriptor, length, 8)
    total.update(header)
    for name, tensor in json.loads(header).items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            yield 8 + length + begin, end - begin


def _spans(size: int) -> Iterator[_Span]:
    """Yield parts of a file of another format, of equal length."""
    length = max(1, -(-size // _SPANS_OF_OTHER_FILES))
    return ((offset, min(length, size - offset)) for offset in range(0, size, length))
