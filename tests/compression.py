"""Compresses bodies for requests."""

import gzip

from backports import zstd


def compressed(body: bytes, coding: bytes) -> bytes:
    """Compress a body with gzip or zstd; any other coding leaves it."""
    match coding:
        case b"gzip":
            return gzip.compress(body, compresslevel=1)
        case b"zstd":
            return zstd.compress(body)
    return body
