"""Makes vLLM's sampler for CPUs draw seeded sequences with their seeds in every batch.

Up to vLLM 0.28 it ignores all generators of a batch in which any sequence has none.
"""

from collections.abc import Callable
from typing import Any

Sample = Callable[..., Any]
"""A forward of vLLM's TopKTopPSampler: logits, generators by row, top k and top p; returns ids first."""

_IDS = 4096


def use_all_generators(sampler: Any) -> None:
    """Let a TopKTopPSampler draw batches with generators by vLLM's slower method, if its own one ignores them."""
    forward = sampler.forward
    if not uses_generators(forward):
        sampler.forward = lambda logits, generators, k, p: (sampler.forward_native if generators else forward)(
            logits, generators, k, p
        )


def uses_generators(sample: Sample) -> bool:
    """Return whether a row is drawn with its generator if another row has none."""
    import torch  # only the engine's processes need it

    def draw() -> int:
        generator = torch.Generator().manual_seed(1)
        return int(sample(torch.zeros(2, _IDS), {0: generator}, None, None)[0][0])

    first = draw()
    return all(draw() == first for _ in range(2))
