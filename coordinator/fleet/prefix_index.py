"""An approximate index, bounded in size, of which worker has which prefixes in its cache."""

from collections.abc import Sequence

from tokenwire.protocol.prefix_hash import BLOCK_TOKENS

CAPACITY = 131_072
"""Blocks in one generation of the index: 8 million tokens, at most 20 MB."""
_SWEEP_AT = 32
"""Removed workers before their bits are cleared, all at once: that visits every block."""


class PrefixIndex:
    """Maps prefix hashes to the workers that hold them, one bit for each worker.

    Records what was sent to a worker, and is exact where the worker publishes KV events. Blocks are in two
    generations: a used block moves to the young one, and when that is full, the old one is evicted.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._bits: dict[str, int] = {}
        self._live = 0
        self._removed = 0

    def __len__(self) -> int:
        """The number of entries; blocks in both generations count twice."""
        return len(self._young) + len(self._old)

    def match(self, hashes: Sequence[int]) -> dict[str, int]:
        """Return how many leading tokens each worker holds, without workers that hold none."""
        young, old = self._young, self._old
        holders = self._live
        ends: list[tuple[int, int]] = []
        for depth, block in enumerate(hashes):
            remaining = holders & (young.get(block) or old.get(block, 0))
            if remaining != holders:
                if depth:
                    ends.append((holders & ~remaining, depth * BLOCK_TOKENS))
                holders = remaining
                if not remaining:
                    break
        if holders and hashes:
            ends.append((holders, len(hashes) * BLOCK_TOKENS))
        return {worker: tokens for bits, tokens in ends for worker, bit in self._bits.items() if bits & bit}

    def add(self, worker: str, hashes: Sequence[int]) -> None:
        """Record that a worker holds these prefixes; of more than fit, the last ones."""
        bit = self._bits.get(worker) or self._assign_bit(worker)
        young, old = self._young, self._old
        for block in hashes[-self._capacity :]:
            young[block] = (young.get(block) or old.get(block, 0)) | bit
        if len(young) > self._capacity:
            self._old, self._young = young, {}

    def remove(self, worker: str, hashes: Sequence[int]) -> None:
        """Record that a worker evicted these prefixes; of more than fit, the last ones."""
        bit = self._bits.get(worker, 0)
        for block in hashes[-self._capacity :]:
            for blocks in (self._young, self._old):
                if block in blocks:
                    blocks[block] &= ~bit
                    if not blocks[block]:
                        del blocks[block]

    def remove_worker(self, worker: str) -> None:
        """Remove a worker."""
        bit = self._bits.pop(worker, 0)
        self._live &= ~bit
        self._removed |= bit

    def _assign_bit(self, worker: str) -> int:
        if self._removed.bit_count() >= _SWEEP_AT:
            self._sweep()
        taken = self._live | self._removed
        bit = ~taken & (taken + 1)
        self._bits[worker] = bit
        self._live |= bit
        return bit

    def _sweep(self) -> None:
        self._young, self._old = (
            {block: bits for block, holders in blocks.items() if (bits := holders & self._live)}
            for blocks in (self._young, self._old)
        )
        self._removed = 0
