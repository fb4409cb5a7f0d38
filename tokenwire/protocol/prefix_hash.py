"""Hashes of prompt prefixes, computed alike by coordinator and worker: a chain of hashes over blocks of token ids.

A hash covers everything up to the end of its block, so equal hashes mean equal prefixes. Prompts that must not share
cache entries (another salt, another adapter) start their chain from another scope.
"""

from array import array
from collections.abc import Iterable
from hashlib import blake2b

BLOCK_TOKENS = 64
"""Small enough to distinguish prompts, large enough that a hash costs less than a microsecond for 30 tokens."""

BLOCK_BYTES = BLOCK_TOKENS * array("I").itemsize
"""Of packed ids."""
_HASH_BYTES = 8


def scope_of(cache_salt: str, lora_id: int, rank: int | None = None) -> bytes:
    """Return the start of chains that share cache entries: of a salt, an adapter and, if pinned, a rank."""
    if not cache_salt and not lora_id and rank is None:
        return b""
    return blake2b(repr((cache_salt, lora_id, rank)).encode(), digest_size=_HASH_BYTES).digest()


def prefix_hashes(token_ids: Iterable[int], scope: bytes = b"") -> list[int]:
    """Return the hash of the prefix that ends with each full block."""
    return [int.from_bytes(digest, "little") for digest in chain(array("I", token_ids).tobytes(), scope)]


def media_marker(name: str) -> int:
    """Return what stands in a chain for the first id of an item of media with this name: ids alone do not tell items
    apart."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "little")


def chain(data: bytes, parent: bytes) -> list[bytes]:
    """Return the chain digests of each full block of packed ids, after a parent digest."""
    digests = []
    for start in range(0, len(data) - len(data) % BLOCK_BYTES, BLOCK_BYTES):
        parent = blake2b(parent + data[start : start + BLOCK_BYTES], digest_size=_HASH_BYTES).digest()
        digests.append(parent)
    return digests
