"""Maps an engine's KV events, which have its own block hashes, to the prefix hashes that coordinators compute."""

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tokenwire.protocol.prefix_hash import BLOCK_BYTES, chain
from tokenwire.worker.cache.prefix_cache import CacheChange


@dataclass(frozen=True, slots=True)
class _Block:
    digest: bytes
    """Chain digest of the longest whole prefix up to the block's end."""
    tail: bytes
    """Packed ids after that prefix."""
    prefix_hashes: tuple[int, ...]
    """Hashes of the prefixes that end in this block."""


class BlockHashes:
    """An engine's cached blocks, of any size: a prefix is cached while the block in which it ends is."""

    def __init__(self) -> None:
        self.change = CacheChange()
        """Changes since they were last taken."""
        self._blocks: dict[Hashable, _Block] = {}

    def on_stored(
        self, hashes: Sequence[Hashable], parent: Hashable | None, token_ids: Sequence[int], scope: bytes
    ) -> None:
        """Record consecutive blocks after a parent, or at a prompt's beginning with the scope."""
        before = _Block(scope, b"", ()) if parent is None else self._blocks.get(parent)
        if before is None or not hashes:
            return  # stored before the subscription began
        size = len(token_ids) // len(hashes)
        for number, block in enumerate(hashes):
            known = self._blocks.get(block)
            if known is None:
                known = self._blocks[block] = _next_block(before, token_ids[number * size : (number + 1) * size])
            for prefix in known.prefix_hashes:
                self.change.store(prefix)
            before = known

    def on_removed(self, hashes: Sequence[Hashable]) -> None:
        """Record that blocks were evicted."""
        for block in hashes:
            known = self._blocks.pop(block, None)
            for prefix in known.prefix_hashes if known is not None else ():
                self.change.remove(prefix)

    def on_cleared(self) -> None:
        """Record that all blocks are gone, or that it is unknown which are left."""
        self._blocks.clear()
        self.change.clear()


def _next_block(before: _Block, token_ids: Sequence[int]) -> _Block:
    data = before.tail + array("I", token_ids).tobytes()
    digests = chain(data, before.digest)
    tail = data[len(digests) * BLOCK_BYTES :]
    prefix_hashes = tuple(int.from_bytes(digest, "little") for digest in digests)
    return _Block(digests[-1] if digests else before.digest, tail, prefix_hashes)
