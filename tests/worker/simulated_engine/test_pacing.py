"""Steps of a simulated engine take their time."""

import time

import pytest

from tests.clock import Clock
from tests.worker.simulated_engine.simulation import LONG, faulty, simulation
from tokenwire.worker.simulated_engine.engine import SimulationSettings
from tokenwire.worker.simulated_engine.pacing import StepPacer


async def test_steps_take_the_step_time() -> None:
    """A step takes the step time, and a prompt as many steps as its length needs at the prefill rate."""
    config = SimulationSettings(step_ms=5, prefill_tokens_per_s=8000)
    async with simulation(config) as sim:
        start = time.monotonic()
        await sim.run(LONG, max_tokens=7)
        elapsed = time.monotonic() - start
        assert sim.engine.steps_total == 4 + 6
    assert elapsed >= 0.05


async def test_slow_steps_take_longer() -> None:
    """The given number of steps takes longer by the factor."""
    time, durations = Clock(), []

    async def sleep(seconds: float) -> None:
        durations.append(seconds)
        time.now += seconds

    faults = faulty("slow@step=3:factor=40:steps=2")
    async with simulation(faults, StepPacer(0.001, time, sleep)) as sim:
        await sim.submit(max_tokens=8)
        for _ in range(8):
            await sim.step()

    assert durations == pytest.approx([0.001, 0.001, 0.04, 0.04, 0.001, 0.001, 0.001, 0.001])
