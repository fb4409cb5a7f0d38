"""Turns what an engine says of blocks by hashes of its own into names of prefixes that coordinators know."""

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tokenwire.prefix_hash import BLOCK_TOKENS, chain
from tokenwire.worker.prefix_cache import CacheChange

_BYTES = BLOCK_TOKENS * array("I").itemsize


@dataclass(frozen=True, slots=True)
class _Block:
    link: bytes
    """Name of the longest prefix up to the block's end that has one."""
    tail: bytes
    """Packed ids behind it."""
    names: tuple[int, ...]
    """Names of the prefixes that end in this block."""


class BlockHashes:
    """Follows an engine's blocks, of any size: a prefix is there while the block is in which it ends."""

    def __init__(self) -> None:
        self.change = CacheChange()
        """What came and went since somebody took it."""
        self._blocks: dict[Hashable, _Block] = {}

    def stored(
        self, hashes: Sequence[Hashable], parent: Hashable | None, token_ids: Sequence[int], scope: bytes
    ) -> None:
        """Hear of blocks that follow each other, behind a parent or, with the scope, at a prompt's beginning."""
        before = _Block(scope, b"", ()) if parent is None else self._blocks.get(parent)
        if before is None or not hashes:
            return  # begun before anybody listened
        size = len(token_ids) // len(hashes)
        for number, block in enumerate(hashes):
            known = self._blocks.get(block)
            if known is None:
                known = self._blocks[block] = _follow(before, token_ids[number * size : (number + 1) * size])
            for name in known.names:
                self.change.store(name)
            before = known

    def removed(self, hashes: Sequence[Hashable]) -> None:
        """Hear of blocks that are gone."""
        for block in hashes:
            known = self._blocks.pop(block, None)
            for name in known.names if known is not None else ():
                self.change.remove(name)

    def cleared(self) -> None:
        """Hear that all blocks are gone, or that nobody knows which are left."""
        self._blocks.clear()
        self.change.clear()


def _follow(before: _Block, token_ids: Sequence[int]) -> _Block:
    data = before.tail + array("I", token_ids).tobytes()
    links = chain(data, before.link)
    tail = data[len(links) * _BYTES :]
    names = tuple(int.from_bytes(link, "little") for link in links)
    return _Block(links[-1] if links else before.link, tail, names)
