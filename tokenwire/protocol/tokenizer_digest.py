"""The digest of tokenizer files, by which coordinator and worker check that they have the same ones."""

import hashlib
from collections.abc import Mapping


def tokenizer_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256, in hex, over names and contents in order of name."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{len(files[name])}\0".encode())
        total.update(files[name])
    return total.hexdigest()
