"""An engine's own block hashes are mapped to the prefix hashes of coordinators."""

import pytest

from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.worker.cache.block_hashes import BlockHashes

PROMPT = list(range(5 * BLOCK_TOKENS))
HASHES = prefix_hashes(PROMPT)


@pytest.mark.parametrize("size", [16, 32, BLOCK_TOKENS, 80, 160])
def test_blocks_of_any_size_map_to_the_prefix_hashes_of_their_tokens(size: int) -> None:
    """In one event or one by one, whether or not block boundaries coincide."""
    blocks = [PROMPT[start : start + size] for start in range(0, len(PROMPT), size)]
    full, single = BlockHashes(), BlockHashes()

    full.on_stored(list(range(len(blocks))), None, PROMPT, b"")
    for number, block in enumerate(blocks):
        single.on_stored([number], number - 1 if number else None, block, b"")

    assert full.change.stored == single.change.stored == set(HASHES)


def test_a_prefix_is_evicted_with_the_block_in_which_it_ends() -> None:
    """An engine evicts the last blocks of a prompt first."""
    blocks = BlockHashes()
    blocks.on_stored([0, 1, 2, 3, 4, 5, 6, 7], None, PROMPT[: 2 * BLOCK_TOKENS], b"")
    blocks.change.stored.clear()

    blocks.on_removed([7, 6])
    assert blocks.change.removed == {HASHES[1]}
    blocks.on_removed([5, 4, 3, 99])
    assert blocks.change.removed == set(HASHES[:2])


def test_the_scope_is_that_of_the_first_block() -> None:
    """Later blocks inherit their parent's scope, whatever comes with their events."""
    blocks, scope = BlockHashes(), scope_of("salt", 1)
    blocks.on_stored([1], None, PROMPT[:BLOCK_TOKENS], scope)
    blocks.on_stored([2], 1, PROMPT[BLOCK_TOKENS : 2 * BLOCK_TOKENS], b"")
    assert blocks.change.stored == set(prefix_hashes(PROMPT, scope)[:2])


def test_blocks_with_an_unknown_parent_are_ignored() -> None:
    """Their prefix cannot be known; after a clear all parents are unknown."""
    blocks = BlockHashes()
    blocks.on_stored([2], 1, PROMPT[:BLOCK_TOKENS], b"")
    assert not blocks.change

    blocks.on_stored([1], None, PROMPT[:BLOCK_TOKENS], b"")
    blocks.on_cleared()
    blocks.on_stored([2], 1, PROMPT[:BLOCK_TOKENS], b"")
    assert blocks.change.cleared
    assert not blocks.change.stored


def test_a_block_that_is_stored_again_is_published_again() -> None:
    """An engine publishes a block whenever it uses one: it is cached then, whatever was published before."""
    blocks = BlockHashes()
    for _ in range(2):
        blocks.change.stored.clear()
        blocks.on_stored([1], None, PROMPT[:BLOCK_TOKENS], b"")
        assert blocks.change.stored == {HASHES[0]}
