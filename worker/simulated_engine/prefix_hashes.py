"""Prefix hashes of a simulated sequence, as coordinators compute them."""

from array import array
from collections.abc import Sequence

from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, chain
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE

_BLOCKS = BLOCK_TOKENS // BLOCK_SIZE


class PrefixHashes:
    """Hashes of a growing sequence's prefixes whose length is a multiple of BLOCK_TOKENS."""

    __slots__ = ("_link", "_links", "_tail")

    def __init__(self, scope: bytes) -> None:
        self._link = scope
        self._links: list[bytes] = []
        self._tail: list[int] = []

    def copy(self) -> "PrefixHashes":
        """Return an independent copy."""
        other = PrefixHashes(self._link)
        other._links, other._tail = self._links[:], self._tail[:]
        return other

    def add(self, token_ids: Sequence[int]) -> None:
        """Append the sequence's next ids."""
        self._tail += token_ids
        full = len(self._tail) - len(self._tail) % BLOCK_TOKENS
        if full:
            self._links += chain(array("I", self._tail[:full]).tobytes(), self._link)
            self._link = self._links[-1]
            del self._tail[:full]

    def at(self, block: int) -> int | None:
        """Return the hash of the prefix that ends with this KV block; None for most blocks."""
        position, rest = divmod(block + 1, _BLOCKS)
        return None if rest else int.from_bytes(self._links[position - 1], "little")
