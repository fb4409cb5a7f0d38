"""An engine's own blocks become names that coordinators know."""

import pytest

from tokenwire.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of
from tokenwire.worker.block_hashes import BlockHashes

PROMPT = list(range(5 * BLOCK_TOKENS))
HASHES = prefix_hashes(PROMPT)


@pytest.mark.parametrize("size", [16, 32, BLOCK_TOKENS, 80, 160])
def test_blocks_of_any_size_have_the_names_of_their_tokens(size: int) -> None:
    """In one message or one by one, whether they end where ours do or not."""
    blocks = [PROMPT[start : start + size] for start in range(0, len(PROMPT), size)]
    whole, single = BlockHashes(), BlockHashes()

    whole.stored(list(range(len(blocks))), None, PROMPT, b"")
    for number, block in enumerate(blocks):
        single.stored([number], number - 1 if number else None, block, b"")

    assert whole.change.stored == single.change.stored == set(HASHES)


def test_a_prefix_goes_with_the_block_in_which_it_ends() -> None:
    """An engine drops the last blocks of a prompt first."""
    names = BlockHashes()
    names.stored([0, 1, 2, 3, 4, 5, 6, 7], None, PROMPT[: 2 * BLOCK_TOKENS], b"")
    names.change.stored.clear()

    names.removed([7, 6])
    assert names.change.removed == {HASHES[1]}
    names.removed([5, 4, 3, 99])
    assert names.change.removed == set(HASHES[:2])


def test_the_scope_is_that_of_the_beginning() -> None:
    """Later blocks follow their parent, whatever is said with them."""
    names, scope = BlockHashes(), scope_of("salt", 1)
    names.stored([1], None, PROMPT[:BLOCK_TOKENS], scope)
    names.stored([2], 1, PROMPT[BLOCK_TOKENS : 2 * BLOCK_TOKENS], b"")
    assert names.change.stored == set(prefix_hashes(PROMPT, scope)[:2])


def test_what_began_before_anybody_listened_has_no_name() -> None:
    """A block behind an unknown one could be anything; after a clearing all are unknown."""
    names = BlockHashes()
    names.stored([2], 1, PROMPT[:BLOCK_TOKENS], b"")
    assert not names.change

    names.stored([1], None, PROMPT[:BLOCK_TOKENS], b"")
    names.cleared()
    names.stored([2], 1, PROMPT[:BLOCK_TOKENS], b"")
    assert names.change.cleared
    assert not names.change.stored


def test_a_block_that_is_stored_again_is_told_again() -> None:
    """An engine says so when it uses one: then it is there, whatever was said before."""
    names = BlockHashes()
    for _ in range(2):
        names.change.stored.clear()
        names.stored([1], None, PROMPT[:BLOCK_TOKENS], b"")
        assert names.change.stored == {HASHES[0]}
