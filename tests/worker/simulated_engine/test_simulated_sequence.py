"""A simulated sequence draws its next tokens a KV block at a time."""

from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.simulated_sequence import SimulatedSequence
from tokenwire.worker.simulated_engine.tokens import (
    LogprobShape,
    Script,
    TokenDistribution,
    TokenRules,
    TokenSource,
    sampled_logprobs,
)

RULES = TokenRules(
    choice=TokenDistribution((5,)),
    early=TokenDistribution((5,)),
    stops=frozenset(),
    eos_token_id=None,
    min_tokens=0,
    max_tokens=100,
    script=Script((1, 2, 3, 4, 5)),
)


def drawing(block_space: int) -> SimulatedSequence:
    """Return a sequence after a prompt of ten ids, with this much room in its block."""
    source = TokenSource(RULES, context=7, key=0)
    sequence = SimulatedSequence(
        EngineSequence(FrameBuffer(), 0, "request", 0), source, prompt_len=10, hashes=[], scope=0
    )
    sequence.block_space = block_space
    return sequence


def test_a_chunk_fills_the_block() -> None:
    """Tokens are popped in their order, each as a step returns it, and count as context once they are."""
    sequence = drawing(block_space=3)
    sequence.draw()

    assert (sequence.block_space, sequence.length) == (0, 10)
    assert [sequence.chunk.pop() for _ in range(2)] == [[1], [2]]
    assert sequence.length == 12


def test_tokens_with_logprobs_are_drawn_one_by_one() -> None:
    """The row of each depends on the context before it."""
    sequence = drawing(block_space=3)
    sequence.logprobs = LogprobShape(likeliest=1)
    before = sequence.source.context
    sequence.draw()

    assert (sequence.chunk, sequence.block_space) == ([[1]], 2)
    assert sequence.row_context == before != sequence.source.context


def test_scores_are_drawn_with_the_chunk() -> None:
    """One for each token, popped likewise."""
    sequence = drawing(block_space=3)
    sequence.scores = []
    sequence.draw()

    assert [len(each) for each in sequence.scores] == [1, 1, 1]
    assert (sequence.chunk.pop(), sequence.scores.pop()) == ([1], sampled_logprobs(False, 7, [1]))


def test_prefixes_are_hashed_only_where_they_are_published() -> None:
    """Without KV events no block has a hash."""
    assert drawing(block_space=3).prefix_hash_of(3) is None
