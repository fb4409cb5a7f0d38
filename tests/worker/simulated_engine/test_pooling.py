"""A simulated engine pools: each input has a vector of its own, which its ids decide."""

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.worker.simulated_engine.simulation import FAST, PROMPT
from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence
from tokenwire.worker.simulated_engine.engine import SimulatedEngine

INPUTS = [[65, 66], [67], [65, 66]]


async def started_pooling(**settings: Any) -> SimulatedEngine:
    """Return an engine that pools."""
    engine = SimulatedEngine(replace(FAST, embedding_width=8, **settings))
    await engine.start()
    return engine


def pool_command(inputs: Sequence[Sequence[int]], task: str = "embed", **fields: Any) -> pb.Pool:
    """Return a command for these inputs."""
    params = fields.pop("params", pb.PoolingParams(task=task, dtype="float32"))
    ids = [token for each in inputs for token in each]
    return pb.Pool(slots=range(len(inputs)), lengths=map(len, inputs), token_ids=ids, params=params, **fields)


async def results_of(engine: SimulatedEngine, pool: pb.Pool) -> list[pb.Pooled]:
    """Return the results of a command."""
    sequences = [EngineSequence(FrameBuffer(), slot, "r", slot) for slot in pool.slots]
    await engine.pool(pool, sequences)
    found: dict[int, pb.Pooled] = {}
    steps = engine.steps()
    while len(found) < len(sequences):
        step = await anext(steps)
        assert not any(step.token_ids)
        assert not step.prefills
        found.update((sequence.slot, finish.pooled) for sequence, finish in step.finishes)
    return [found[slot] for slot in pool.slots]


async def test_equal_inputs_have_equal_vectors() -> None:
    """Unit vectors, alone and together; other seeds, adapters and weights have others."""
    engine = await started_pooling()

    first, second, third = await results_of(engine, pool_command(INPUTS))

    assert first == third != second
    assert [first] == await results_of(engine, pool_command(INPUTS[:1]))
    assert math.isclose(sum(value**2 for value in struct.unpack("<8f", first.data)), 1, abs_tol=1e-6)
    assert [first] != await results_of(
        engine, pool_command(INPUTS[:1], lora=pb.LoraAdapter(id=3, name="red", path="/red"))
    )
    assert [first] != await results_of(await started_pooling(seed=1), pool_command(INPUTS[:1]))
    await engine.load_weights("/weights/two")
    assert [first] != await results_of(engine, pool_command(INPUTS[:1]))


async def test_tokens_have_vectors_too() -> None:
    """One row each."""
    (result,) = await results_of(await started_pooling(), pool_command([[65, 66, 67]], "token_embed"))

    assert (list(result.shape), len(result.data)) == ([3, 8], 3 * 8 * 4)


async def test_an_input_may_fill_the_context() -> None:
    """There is no reply that needs room."""
    engine = await started_pooling(max_model_len=64)

    assert len(await results_of(engine, pool_command([[65] * 64]))) == 1


async def test_inputs_wait_for_each_other() -> None:
    """As many run as the engine runs at a time, and an abort ends them."""
    engine = await started_pooling(max_num_seqs=2, prefill_tokens_per_s=10, step_ms=1.0)
    sequences = [EngineSequence(FrameBuffer(), slot, "r", slot) for slot in range(5)]
    await engine.pool(pool_command([[65] * 50] * 5), sequences)

    await engine.abort(sequences)

    step = await anext(engine.steps())
    assert {finish.reason for _, finish in step.finishes} == {pb.FINISH_REASON_ABORT}
    assert engine.open_sequences == 0


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (pool_command(INPUTS, "classify"), "Unsupported task: 'classify'"),
        (pool_command(INPUTS, params=pb.PoolingParams(task="embed", dtype="bfloat16")), "embed_dtype"),
        (pool_command(INPUTS, params=pb.PoolingParams(task="embed", dtype="float32", dimensions=2)), "Matryoshka"),
        (pool_command([[]]), "cannot be empty"),
        (pool_command([[65] * 40_000]), "longer than the maximum model length"),
        (pool_command([[2**31]]), "out of vocabulary"),
        (pb.Pool(slots=[1], params=pb.PoolingParams(task="embed", dtype="float32")), "lengths"),
    ],
)
async def test_what_a_model_cannot_pool_is_refused(pool: pb.Pool, message: str) -> None:
    """Before any of it has started."""
    engine = await started_pooling()

    with pytest.raises(InvalidRequest, match=message):
        await engine.pool(pool, [EngineSequence(FrameBuffer(), slot, "r", slot) for slot in pool.slots])
    assert engine.open_sequences == 0


async def test_an_engine_pools_or_generates() -> None:
    """And says which."""
    generates, pools = SimulatedEngine(FAST), await started_pooling(max_num_seqs=1, max_queue=1)
    await generates.start()
    sequence = EngineSequence(FrameBuffer(), 0, "r", 0)

    with pytest.raises(InvalidRequest, match="does not support pooling"):
        await generates.pool(pool_command([[65]]), [sequence])
    with pytest.raises(InvalidRequest, match="does not support generation"):
        await pools.submit(pb.Submit(prompt_token_ids=PROMPT), [sequence])
    with pytest.raises(Overloaded):
        await pools.pool(pool_command([[65]] * 3), [sequence] * 3)
    assert list(generates.describe().tasks) == ["generate"]
    assert not generates.describe().HasField("pooling")
    assert list(pools.describe().tasks) == ["embed", "token_embed"]
    assert pools.describe().pooling.width == 8
