"""Seeded sequences are drawn with their seeds beside others without one."""

from typing import Any

import pytest

from tests.lazily import Lazily
from tokenwire.worker.vllm_engine.seeded_rows import draw_unseeded, seeded_draw, use_all_generators, uses_generators

torch = Lazily("torch")

pytestmark = pytest.mark.engine


class _Sampler:
    """Stands for vLLM's sampler: its forward ignores generators, or not, and its other method uses them."""

    def __init__(self, ignores: bool) -> None:
        self._ignores = ignores
        self.forward = self.forward_cpu
        self.native = 0
        self.rows: list[int] = []

    def forward_cpu(self, logits: Any, generators: dict[int, Any], k: Any, p: Any) -> tuple[Any, None]:
        self.rows.append(len(logits))
        return self._draw(logits, {} if self._ignores else generators), None

    def forward_native(self, logits: Any, generators: dict[int, Any], k: Any, p: Any) -> tuple[Any, None]:
        self.native += 1
        return self._draw(logits, generators), None

    def _draw(self, logits: Any, generators: dict[int, Any]) -> Any:
        noise = torch.empty_like(logits).exponential_()
        for row, generator in generators.items():
            noise[row].exponential_(generator=generator)
        return (logits.softmax(-1) / noise).argmax(-1)


def test_a_sampler_that_ignores_generators_is_replaced_for_batches_with_any() -> None:
    """Batches without seeds keep the fast way."""
    sampler = _Sampler(ignores=True)
    assert not uses_generators(sampler.forward)
    use_all_generators(sampler)
    assert uses_generators(sampler.forward)
    before = sampler.native
    sampler.forward(torch.zeros(2, 8), {}, None, None)
    assert sampler.native == before


def test_a_sampler_that_uses_generators_stays() -> None:
    """Newer ones need no help."""
    sampler = _Sampler(ignores=False)
    use_all_generators(sampler)
    assert sampler.forward == sampler.forward_cpu


def test_what_draws_unseeded_rows_is_compiled_and_leaves_no_trace() -> None:
    """For one row and for several; the engine's own generator draws the same afterwards."""
    sampler = _Sampler(ignores=False)
    state = torch.get_rng_state()
    draw_unseeded(sampler, 8)
    assert sampler.rows == [1, 2]
    assert torch.equal(torch.get_rng_state(), state)


def test_what_a_seed_draws_names_the_noise() -> None:
    """It is the same each time, and changes nothing of the engine's own generator."""
    state = torch.get_rng_state()

    assert seeded_draw(_Sampler(ignores=False), torch.device("cpu")) == seeded_draw(
        _Sampler(ignores=False), torch.device("cpu")
    )
    assert torch.equal(torch.get_rng_state(), state)
