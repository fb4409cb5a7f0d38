"""Makes vLLM's sampler for CPUs draw seeded sequences with their seeds in every batch, and compile before it serves.

Up to vLLM 0.28 it ignores all generators of a batch in which any sequence has none. Up to 0.31 it compiles what draws
batches without any at the first of these, for which all others would wait.
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


def seeded_draw(sampler: Any, device: Any) -> int:
    """Return the first id that a seed draws of equally likely ones: engines that draw another one draw other tokens."""
    import torch

    with torch.inference_mode(), torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        generator = torch.Generator(device).manual_seed(7)
        return int(sampler.forward(torch.zeros(1, _IDS, device=device), {0: generator}, None, None)[0][0])


def draw_unseeded(sampler: Any, vocabulary: int) -> None:
    """Draw one row and several ones without generators; the engine's own one keeps its state."""
    import torch

    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        for rows in (1, 2):  # torch compiles for one by itself
            sampler.forward(torch.zeros(rows, vocabulary), {}, None, None)
