"""A simulated engine: its life, its counters, its weights and adapters, consecutive pauses, refused operations."""

import asyncio

import pytest

from tests.worker.simulated_engine.simulation import FAST, PROMPT, simulation
from tokenwire.errors import Unavailable, Unsupported
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, PauseMode
from tokenwire.worker.simulated_engine.engine import SimulatedEngine

RED = pb.Submit(lora=pb.LoraAdapter(name="red", id=7, path="/red"))


async def test_an_engine_that_is_not_running_refuses_requests() -> None:
    """Before its start and after its stop an engine accepts nothing, and stopping twice is safe."""
    engine = SimulatedEngine(FAST)
    submit, sequence = pb.Submit(prompt_token_ids=PROMPT), EngineSequence(FrameBuffer(), 0, "request", 0)
    with pytest.raises(Unavailable):
        await engine.submit(submit, [sequence])
    await engine.start()
    await engine.stop()
    await engine.stop()
    with pytest.raises(Unavailable):
        await engine.submit(submit, [sequence])


async def test_weights_and_adapters_change_the_tokens() -> None:
    """Other weights and adapters generate other tokens; the same ones repeat them."""
    async with simulation() as sim:
        results = [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("/models/step_1")
        results += [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("")

        assert len({tuple(result.ids) for result in results}) == 4
        assert (await sim.run()).ids == results[0].ids


async def test_a_waiting_pause_lets_frozen_sequences_finish() -> None:
    """A pause in mode WAIT lets sequences finish that an earlier one froze."""
    async with simulation() as sim:
        (sequence,) = await sim.submit(max_tokens=50)
        await sim.step()
        await sim.engine.pause(PauseMode.KEEP, clear_cache=False)
        waiting = asyncio.create_task(sim.engine.pause(PauseMode.WAIT, clear_cache=False))

        await sim.finish()
        (held,) = await sim.submit(max_tokens=1)
        stepping = asyncio.create_task(sim.finish())
        await asyncio.wait_for(waiting, 10)
        await sim.engine.resume()
        await stepping

        assert len(sim.results[sequence].ids) == 50
        assert len(sim.results[held].ids) == 1


async def test_an_idle_engine_does_not_step() -> None:
    """Without work there is no step; the next request resumes stepping."""
    async with simulation() as sim:
        await sim.run()
        steps = sim.engine.steps_total
        waiting = asyncio.ensure_future(sim.step())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        (sequence,) = await sim.submit()
        await waiting
        assert (len(sim.results[sequence].ids), sim.engine.steps_total) == (1, steps + 1)


async def test_the_engine_counts_its_work() -> None:
    """The engine counts steps, tokens, requests and open sequences."""
    async with simulation() as sim:
        await sim.submit(n=2, max_tokens=5)
        await sim.submit(max_tokens=9)
        assert sim.engine.open_sequences == 3
        await sim.finish()
        engine = sim.engine
    assert (engine.steps_total, engine.tokens_total, engine.requests_total, engine.open_sequences) == (9, 19, 2, 0)


async def test_adapters_change_the_tokens() -> None:
    """Adapters are listed once loaded, explicitly or by a request, and generate other tokens than the base model."""
    async with simulation() as sim:
        adapter = pb.LoraAdapter(name="poet", id=4, path="/poet")
        assert await sim.engine.load_lora(pb.LoraAdapter(name="cook", id=2, path="/cook"))
        base, poet = await sim.run(PROMPT), await sim.run(PROMPT, submit=pb.Submit(lora=adapter))
        assert base.ids != poet.ids
        assert await sim.engine.list_loras() == [2, 4]
        assert await sim.engine.unload_lora(2)
        assert not await sim.engine.unload_lora(2)


async def test_unsupported_operations_are_refused() -> None:
    """Operations that need real processes or weights raise Unsupported with their name."""
    async with simulation() as sim:
        with pytest.raises(Unsupported, match="'reload'"):
            await sim.engine.collective_rpc("reload", None, [], {})
        with pytest.raises(Unsupported, match="'polish'"):
            await sim.engine.update_weights("polish", {})
