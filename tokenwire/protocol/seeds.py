"""The seeds of a request's sequences, equal on any worker."""

from tokenwire.v1 import inference_pb2 as pb

NO_SEED = -1
"""The value that vLLM's parameters treat as "no seed", also in those of a single sequence."""
GREEDY_BELOW = 1e-5
"""vLLM samples greedily below this temperature, without a seed."""

# Hardly any other sequence's seed: clients choose small ones, and count up from them. The low 32 bits matter, because
# torch's generator on CPUs takes no others.
_REPLACEMENT = -(2**63) + 0x9E3779B9


def is_greedy(params: pb.SamplingParams) -> bool:
    """Return whether a request asks for greedy sampling."""
    return params.HasField("temperature") and params.temperature < GREEDY_BELOW


def has_seed(params: pb.SamplingParams) -> bool:
    """Return whether a request's sequences are sampled by a seed."""
    return params.HasField("seed") and params.seed != NO_SEED and not is_greedy(params)


def sequence_seed(seed: int, index: int) -> int:
    """Return the seed of the sequence with this index, as in vLLM, except that it is never NO_SEED.

    vLLM counts from -2 to -1, so that the second sequence cannot be reproduced. `seed` may be that of an earlier
    sequence, from which a part of a request counts on.
    """
    own = (NO_SEED if seed == _REPLACEMENT else seed) + index
    return _REPLACEMENT if own == NO_SEED else own
