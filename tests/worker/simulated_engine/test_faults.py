"""Faults of a simulated engine on command."""

import asyncio
import subprocess
import sys

import pytest

from tests.worker.simulated_engine.simulation import PROMPT, faulty, simulation
from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import PauseMode
from tokenwire.worker.simulated_engine.engine import FaultPlan
from tokenwire.worker.simulated_engine.faults import Fault, FaultKind, FaultTrigger, parse_fault


def test_faults_are_parsed() -> None:
    """Faults are parsed with their trigger and options, from one text or several."""
    plan = FaultPlan.parse(["crash@tokens=500, slow@step=50:factor=2.5:steps=20", "error@request=3:after=8"])
    assert plan.faults == (
        Fault(FaultKind.CRASH, FaultTrigger.TOKENS, 500),
        Fault(FaultKind.SLOW, FaultTrigger.STEP, 50, factor=2.5, steps=20),
        Fault(FaultKind.ERROR, FaultTrigger.REQUEST, 3, after=8),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("melt@step=1", "kind 'melt' is none of crash, hang, exit, slow, error"),
        ("crash", "trigger '' is none of step, tokens, request"),
        ("crash@moon=1", "trigger 'moon' is none of"),
        ("crash@step", "step must be an integer of at least 1, not ''"),
        ("crash@step=0", "step must be an integer of at least 1, not '0'"),
        ("crash@step=1:factor=2", "crash has no option 'factor'; its options: none"),
        ("slow@step=1:factor=0", "factor must be a number above 0, not '0'"),
        ("slow@step=1:factor=nan", "factor must be a number above 0"),
        ("error@request=1:after=0", "after must be an integer of at least 1"),
        ("error@step=3", "error needs the trigger request"),
    ],
)
def test_an_invalid_fault_is_refused(text: str, message: str) -> None:
    """The error names the cause."""
    with pytest.raises(ValueError, match=message):
        parse_fault(text)


async def test_a_crash_ends_every_sequence() -> None:
    """A crash ends every live sequence with ERROR, then the steps fail, and so does every later call."""
    async with simulation(faulty("crash@tokens=10", max_num_seqs=2)) as sim:
        sequences = await sim.submit(n=3)
        for _ in range(5):
            await sim.step()
        step = await sim.step()
        assert not step.sequences
        assert {sequence: finish.reason for sequence, finish in step.finishes} == dict.fromkeys(
            sequences, pb.FINISH_REASON_ERROR
        )
        with pytest.raises(EngineFailed, match="crashed"):
            await sim.step()
        with pytest.raises(EngineFailed, match="crashed"):
            await sim.submit()


async def test_crash_ends_a_waiting_pause() -> None:
    """A pause that waits for sequences to end raises when the engine crashes."""
    async with simulation(faulty("crash@step=3")) as sim:
        await sim.submit()
        pausing = asyncio.ensure_future(sim.engine.pause(PauseMode.WAIT, clear_cache=False))
        for _ in range(3):
            await sim.step()
        with pytest.raises(EngineFailed):
            await pausing


async def test_a_hang_stops_all_output() -> None:
    """A hanging engine accepts requests and aborts, but has no output until it is stopped."""
    async with simulation(faulty("hang@step=4")) as sim:
        sequences = await sim.submit()
        for _ in range(3):
            await sim.step()
        hanging = asyncio.ensure_future(anext(sim.steps))
        await sim.submit()
        await sim.engine.abort(sequences)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not hanging.done()
        await sim.engine.stop()
        with pytest.raises(StopAsyncIteration):
            await hanging


async def test_an_error_ends_one_request() -> None:
    """The sequences of that request end with ERROR mid-step; all others continue."""
    async with simulation(faulty("error@request=2:after=5")) as sim:
        (first,), second, (third,) = await sim.submit(), await sim.submit(n=2), await sim.submit()
        await sim.finish()
        for sequence in second:
            result = sim.results[sequence]
            assert (len(result.ids), result.finish.reason) == (5, pb.FINISH_REASON_ERROR)
            assert result.finish.error_message
        for sequence in (first, third):
            assert sim.results[sequence].finish.reason == pb.FINISH_REASON_LENGTH


def test_an_exit_ends_the_process() -> None:
    """The engine's process exits at once, with the code of a kill."""
    script = (
        "import asyncio\n"
        "from tests.worker.simulated_engine.simulation import faulty, simulation\n"
        "async def main():\n"
        "    async with simulation(faulty('exit@step=3')) as sim:\n"
        f"        await sim.run({PROMPT})\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (137, b"")
