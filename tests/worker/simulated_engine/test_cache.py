"""A simulated engine's prefix cache: what is reused, shared and evicted."""

import pytest

from tests.worker.simulated_engine.simulation import LONG, simulation
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.cache import KvCache


async def test_cached_blocks_are_reused() -> None:
    """A prompt reuses full blocks of an earlier one or of its own continuation, but computes its last token."""
    async with simulation() as sim:
        first = await sim.run(LONG, max_tokens=40)
        assert first.cached_tokens == 0
        assert (await sim.run(LONG)).cached_tokens == 144
        assert (await sim.run([*LONG, 1])).cached_tokens == 160
        assert (await sim.run(LONG + first.ids)).cached_tokens == 192
        assert (await sim.run([0, *LONG])).cached_tokens == 0


async def test_cached_blocks_have_a_scope() -> None:
    """Another salt, another adapter and a request for prompt log-probabilities share no blocks."""
    async with simulation() as sim:
        await sim.run(LONG)
        assert (await sim.run(LONG, submit=pb.Submit(cache_salt="mine"))).cached_tokens == 0
        assert (await sim.run(LONG, submit=pb.Submit(cache_salt="mine"))).cached_tokens == 144
        assert (await sim.run(LONG, submit=pb.Submit(lora=pb.LoraAdapter(id=1)))).cached_tokens == 0
        assert (await sim.run(LONG, skip_reading_prefix_cache=True)).cached_tokens == 0
        assert (await sim.run(LONG, prompt_logprobs=0)).cached_tokens == 0


async def test_sequences_share_their_prompt() -> None:
    """The second sequence of a request reuses the first one's prompt."""
    async with simulation() as sim:
        first, second = await sim.submit(LONG, n=2)
        step = await sim.step()
        assert (sim.results[first].cached_tokens, sim.results[second].cached_tokens) == (0, 144)
        # 9 shared blocks; for each sequence the prompt's last block, sealed and so shared too, and one to fill.
        assert step.load.kv_cache_usage == pytest.approx((10 + 2) / (524288 // 16))


def test_the_cache_evicts_the_oldest_blocks() -> None:
    """A full cache evicts the blocks that were freed first, and the last ones of a sequence before earlier ones."""
    cache = KvCache(4)
    for blocks in ([1, 2], [3, 4]):
        assert cache.admit([], 2)
        for block in blocks:
            cache.seal(block)
        cache.release(blocks, 0)
    assert cache.admit([], 1)
    assert (cache.match([1, 2]), cache.match([3, 4])) == (1, 2)
    assert not cache.admit([3, 4], 2)
    assert cache.admit([3, 4], 1)
    assert cache.usage == 1.0
    assert not cache.allocate()
