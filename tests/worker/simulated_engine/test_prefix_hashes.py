"""Prefix hashes of a growing sequence are those that coordinators compute of its whole."""

import pytest

from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.worker.simulated_engine.prefix_hashes import PrefixHashes
from tokenwire.worker.simulated_engine.settings import BLOCK_SIZE

IDS = [token % 251 for token in range(3 * BLOCK_TOKENS)]


def all_of(hashes: PrefixHashes, tokens: int) -> list[int]:
    """Return the hashes at the ends of a context's KV blocks, without those that have none."""
    return [found for block in range(tokens // BLOCK_SIZE) if (found := hashes.at(block)) is not None]


@pytest.mark.parametrize("piece", [1, BLOCK_SIZE, BLOCK_TOKENS - 1, BLOCK_TOKENS, len(IDS)])
@pytest.mark.parametrize("scope", [b"", scope_of("salt", 3)])
def test_ids_may_come_in_any_pieces(piece: int, scope: bytes) -> None:
    """Each hash is that of the whole prefix in its scope, however the ids were added."""
    hashes = PrefixHashes(scope)
    for start in range(0, len(IDS), piece):
        hashes.add(IDS[start : start + piece])

    assert all_of(hashes, len(IDS)) == prefix_hashes(IDS, scope)


def test_only_blocks_that_end_a_prefix_have_a_hash() -> None:
    """KV blocks are smaller than the blocks that are hashed."""
    hashes = PrefixHashes(b"")
    hashes.add(IDS[:BLOCK_TOKENS])

    last = BLOCK_TOKENS // BLOCK_SIZE - 1
    assert [hashes.at(block) is None for block in range(last + 1)] == [True] * last + [False]


def test_a_copy_grows_alone() -> None:
    """Sequences of one request share their prompt and nothing after it."""
    first = PrefixHashes(b"")
    first.add(IDS[: BLOCK_TOKENS + 1])
    second = first.copy()
    first.add([7] * (BLOCK_TOKENS - 1))
    second.add(IDS[BLOCK_TOKENS + 1 : 2 * BLOCK_TOKENS])

    assert all_of(second, 2 * BLOCK_TOKENS) == prefix_hashes(IDS[: 2 * BLOCK_TOKENS])
    assert all_of(first, 2 * BLOCK_TOKENS)[1] != all_of(second, 2 * BLOCK_TOKENS)[1]
