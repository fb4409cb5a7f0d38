"""Which worker holds which prefixes in its cache: an index that is nearly right and never large."""

from collections.abc import Iterable, Sequence

from tokenwire.prefix_hash import BLOCK_TOKENS

_CAPACITY = 131_072
"""Blocks in one generation of the index: 8 million tokens, at most 20 MB."""
_SWEEP_AT = 32
"""Workers that are gone before their marks are wiped off, all at once: that looks at every block."""


class PrefixIndex:
    """Maps names of prefixes to the workers that hold them, one bit for each.

    Knows what was sent to a worker, and better where the worker tells what it stores and drops. Blocks live in two
    generations: what is used moves to the young one, and when that is full, the old one is forgotten.
    """

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._bits: dict[str, int] = {}
        self._live = 0
        self._gone = 0

    def __len__(self) -> int:
        """Blocks that are remembered, those of both generations counted twice."""
        return len(self._young) + len(self._old)

    def match(self, hashes: Sequence[int]) -> dict[str, int]:
        """Return how many leading tokens each worker holds; workers with none are left out."""
        young, old = self._young, self._old
        holders = self._live
        ends: list[tuple[int, int]] = []
        for depth, block in enumerate(hashes):
            still = holders & (young.get(block) or old.get(block, 0))
            if still != holders:
                if depth:
                    ends.append((holders & ~still, depth * BLOCK_TOKENS))
                holders = still
                if not still:
                    break
        if holders and hashes:
            ends.append((holders, len(hashes) * BLOCK_TOKENS))
        return {worker: tokens for gone, tokens in ends for worker, bit in self._bits.items() if gone & bit}

    def add(self, worker: str, hashes: Iterable[int]) -> None:
        """Remember that a worker holds these prefixes."""
        bit = self._bits.get(worker) or self._join(worker)
        young, old = self._young, self._old
        for block in hashes:
            young[block] = (young.get(block) or old.get(block, 0)) | bit
        if len(young) > self._capacity:
            self._old, self._young = young, {}

    def remove(self, worker: str, hashes: Iterable[int]) -> None:
        """Forget that a worker holds these prefixes."""
        bit = self._bits.get(worker, 0)
        for block in hashes:
            for blocks in (self._young, self._old):
                if block in blocks:
                    blocks[block] &= ~bit
                    if not blocks[block]:
                        del blocks[block]

    def forget(self, worker: str) -> None:
        """Forget all that a worker holds."""
        bit = self._bits.pop(worker, 0)
        self._live &= ~bit
        self._gone |= bit

    def _join(self, worker: str) -> int:
        if self._gone.bit_count() >= _SWEEP_AT:
            self._sweep()
        taken = self._live | self._gone
        bit = ~taken & (taken + 1)
        self._bits[worker] = bit
        self._live |= bit
        return bit

    def _sweep(self) -> None:
        self._young, self._old = (
            {block: bits for block, marks in blocks.items() if (bits := marks & self._live)}
            for blocks in (self._young, self._old)
        )
        self._gone = 0
