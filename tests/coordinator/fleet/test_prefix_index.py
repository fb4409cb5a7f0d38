"""Block hashes, and the index of the prefixes that workers have cached."""

from tokenwire.coordinator.fleet.prefix_index import PrefixIndex
from tokenwire.protocol.prefix_hash import BLOCK_TOKENS, chain, prefix_hashes, scope_of

PROMPT = list(range(5 * BLOCK_TOKENS))
HASHES = prefix_hashes(PROMPT)


def test_equal_prefixes_have_equal_hashes() -> None:
    """Each hash covers all tokens before it; an incomplete block has none."""
    longer = prefix_hashes([*PROMPT[: 3 * BLOCK_TOKENS], *range(1000, 1000 + BLOCK_TOKENS + 7)])

    assert len(longer) == 4
    assert longer[:3] == HASHES[:3]
    assert longer[3] != HASHES[3]
    assert prefix_hashes([7, *PROMPT])[1] != HASHES[1]


def test_prefixes_that_share_no_cache_have_different_hashes() -> None:
    """A salt, an adapter and a rank each start their own chain; empty ones change nothing."""
    scopes = [scope_of("", 0), scope_of("salt", 0), scope_of("", 1), scope_of("", 0, 0), scope_of("", 0, 1)]

    names = {prefix_hashes(PROMPT, scope)[0] for scope in scopes}

    assert len(names) == len(scopes)
    assert scopes[0] == b""


def test_a_chain_can_be_continued() -> None:
    """Hashing blocks one after the other gives the same hashes as hashing the whole prompt."""
    data = b"".join(token.to_bytes(4, "little") for token in PROMPT)
    half = 2 * BLOCK_TOKENS * 4

    first = chain(data[:half], b"")
    rest = chain(data[half:], first[-1])

    assert [int.from_bytes(link, "little") for link in first + rest] == HASHES


def test_each_worker_matches_its_longest_prefix() -> None:
    """The contiguous prefix counts, whatever other workers hold."""
    index = PrefixIndex()
    index.add("all", HASHES)
    index.add("two", HASHES[:2])
    index.add("torn", [HASHES[0], *HASHES[2:]])
    index.add("other", prefix_hashes(PROMPT[::-1]))

    held = index.match(HASHES)

    assert held == {"all": 5 * BLOCK_TOKENS, "two": 2 * BLOCK_TOKENS, "torn": BLOCK_TOKENS}
    assert index.match([]) == {}


def test_a_removed_block_ends_the_match() -> None:
    """Of one worker only; blocks without a holder take no memory."""
    index = PrefixIndex()
    index.add("a", HASHES)
    index.add("b", HASHES)

    index.remove("a", HASHES[3:])

    assert index.match(HASHES) == {"a": 3 * BLOCK_TOKENS, "b": 5 * BLOCK_TOKENS}
    index.remove("b", HASHES)
    index.remove("unknown", HASHES)
    assert len(index) == 3


def test_a_removed_worker_leaves_no_entries() -> None:
    """However many are added and removed, a new one holds nothing, and bits of removed ones are cleared."""
    index = PrefixIndex()
    index.add("stays", HASHES[:1])
    for number in range(100):
        index.add(f"worker-{number}", HASHES)
        index.remove_worker(f"worker-{number}")

    index.add("new", HASHES[1:])

    assert index.match(HASHES) == {"stays": BLOCK_TOKENS}


def test_the_index_is_bounded_and_keeps_used_blocks() -> None:
    """It evicts blocks that were not used while it was filled once."""
    index = PrefixIndex(capacity=100)
    index.add("a", HASHES)
    for number in range(200):
        index.add("a", prefix_hashes([number + 1, *PROMPT]))
        index.add("b", HASHES[:2])
        assert len(index) <= 210

    assert index.match(prefix_hashes([1, *PROMPT])) == {}
    assert index.match(HASHES)["b"] == 2 * BLOCK_TOKENS


def test_of_more_blocks_than_it_holds_the_last_are_taken() -> None:
    """A worker that announces millions of them takes no more time and memory."""
    index = PrefixIndex(capacity=4)

    index.add("a", range(100))
    assert len(index) == 4
    assert index.match([99]) == {"a": BLOCK_TOKENS}

    index.remove("a", range(100))
    assert len(index) == 0
