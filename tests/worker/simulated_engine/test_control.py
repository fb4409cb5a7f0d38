"""Weights, adapters and consecutive pauses of a simulated engine."""

import asyncio

from tests.worker.simulated_engine.simulation import simulation
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import PauseMode

RED = pb.Submit(lora=pb.LoraAdapter(name="red", id=7, path="/red"))


async def test_weights_and_adapters_change_the_tokens() -> None:
    """Other weights and adapters generate other tokens; the same ones repeat them."""
    async with simulation() as sim:
        said = [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("/models/step_1")
        said += [await sim.run(), await sim.run(submit=RED)]
        await sim.engine.load_weights("")

        assert len({tuple(result.ids) for result in said}) == 4
        assert (await sim.run()).ids == said[0].ids


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
