"""The seeds of a request's sequences, the same wherever one of them is generated."""

NO_SEED = -1
"""What vLLM's parameters read as "no seed", also in those of a single sequence on their way to an engine."""

# Nobody else's: a client whose seed is this one has sequences that count up from it.
_INSTEAD = -(2**63)


def sequence_seed(seed: int, index: int) -> int:
    """Return the seed of the sequence with this index, as vLLM counts; but every sequence of a seeded request has one.

    vLLM counts from -2 to -1, and so draws a second sequence that never comes out again.
    """
    own = seed + index
    return _INSTEAD if own == NO_SEED else own
