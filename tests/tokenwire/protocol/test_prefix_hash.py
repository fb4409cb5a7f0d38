"""Hashes of prompt prefixes, which coordinators and workers of different releases compute alike."""

from hypothesis import given
from hypothesis import strategies as st

from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, prefix_hashes, scope_of

IDS = list(range(2 * BLOCK_TOKENS))


def test_hashes_are_the_same_in_every_process() -> None:
    """Both sides of a connection compute them: a change of these numbers is a change of the protocol."""
    assert prefix_hashes(IDS) == [3678511507499414395, 16711132356140771006]


@given(
    ids=st.lists(st.integers(0, 2**32 - 1), max_size=3 * BLOCK_TOKENS),
    more=st.lists(st.integers(0, 2**32 - 1), max_size=2 * BLOCK_TOKENS),
)
def test_a_prefix_keeps_its_hashes_as_it_grows(ids: list[int], more: list[int]) -> None:
    """There is one hash per full block, and what follows changes none of them."""
    hashes = prefix_hashes(ids)

    assert len(hashes) == len(ids) // BLOCK_TOKENS
    assert prefix_hashes(ids + more)[: len(hashes)] == hashes


def test_a_hash_covers_everything_before_it() -> None:
    """A different first id changes the hash of every block."""
    assert set(prefix_hashes([9, *IDS[1:]])).isdisjoint(prefix_hashes(IDS))


def test_requests_that_must_not_share_cache_have_different_hashes() -> None:
    """Another salt, adapter or pinned rank starts another chain; without any of them the scope is empty."""
    scopes = [scope_of("", 0), scope_of("a", 0), scope_of("b", 0), scope_of("", 1), scope_of("", 0, rank=0)]

    assert scopes[0] == b""
    assert len({hashed for scope in scopes for hashed in prefix_hashes(IDS, scope)}) == 2 * len(scopes)
