"""A simulated engine's sequences run, wait, share memory, pause and end."""

import asyncio

import pytest

from tests.worker.simulated_engine.simulation import FAST, LONG, simulation
from tokenwire.errors import InvalidRequest, Overloaded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import PauseMode
from tokenwire.worker.simulated_engine.engine import SimulationSettings


async def test_prefill_is_chunked() -> None:
    """A long prompt is computed in chunks while other sequences continue."""
    async with simulation(SimulationSettings(step_ms=1, prefill_tokens_per_s=40_000)) as sim:
        (short,) = await sim.submit(max_tokens=50)
        (long,) = await sim.submit(LONG)
        for _ in range(4):
            await sim.step()
        assert (len(sim.results[short].ids), len(sim.results[long].ids)) == (4, 0)
        await sim.step()
        assert (len(sim.results[short].ids), len(sim.results[long].ids)) == (5, 1)


async def test_sequences_beyond_the_batch_wait() -> None:
    """Sequences that do not fit into the batch wait in order, and count as waiting in the load."""
    async with simulation(SimulationSettings(step_ms=0, max_num_seqs=2)) as sim:
        sequences = await sim.submit(n=3, max_tokens=10)
        load = (await sim.step()).load
        assert (load.running, load.waiting) == (2, 1)
        for _ in range(9):
            await sim.step()
        assert [len(sim.results[sequence].ids) for sequence in sequences] == [10, 10, 0]
        load = (await sim.step()).load
        assert (load.running, load.waiting) == (1, 0)


async def test_waiting_sequences_run_by_priority() -> None:
    """The lowest priority value runs first."""
    async with simulation(SimulationSettings(step_ms=0, max_num_seqs=1)) as sim:
        (late,) = await sim.submit(submit=pb.Submit(priority=1))
        (early,) = await sim.submit(submit=pb.Submit(priority=-1))
        await sim.step()
        assert (len(sim.results[late].ids), len(sim.results[early].ids)) == (0, 1)


async def test_a_full_queue_refuses_requests() -> None:
    """A request beyond the queue's limit is refused, and accepted once there is capacity."""
    async with simulation(SimulationSettings(step_ms=0, max_num_seqs=2, max_queue=2)) as sim:
        await sim.submit(n=3)
        with pytest.raises(Overloaded):
            await sim.submit(n=2)
        await sim.submit()
        with pytest.raises(Overloaded):
            await sim.submit()
        await sim.finish()
        await sim.submit()


async def test_sequences_are_preempted_under_memory_pressure() -> None:
    """With too little memory sequences are preempted and resumed: all end, with the tokens of a large cache."""
    prompts = [[i] * (20 + 3 * i) for i in range(12)]
    small = SimulationSettings(step_ms=0, max_model_len=256, kv_tokens=512)
    async with simulation() as with_capacity, simulation(small) as tight:
        expected = [(await with_capacity.run(prompt, max_tokens=150)).ids for prompt in prompts]
        sequences = [(await tight.submit(prompt, max_tokens=150))[0] for prompt in prompts]
        peak = 0.0
        while tight.engine.open_sequences:
            peak = max(peak, (await tight.step()).load.kv_cache_usage)
        last = (await tight.engine.reset_cache(False, False), peak)
    assert [tight.results[sequence].ids for sequence in sequences] == expected
    assert last == (True, 1.0)


async def test_memory_is_freed() -> None:
    """When all sequences have ended or were aborted, no memory is in use."""
    async with simulation() as sim:
        sequences = await sim.submit(LONG, n=4)
        await sim.step()
        await sim.engine.abort(sequences[:2])
        load = pb.Load(kv_cache_usage=1)
        while sim.engine.open_sequences:
            load = (await sim.step()).load
    assert load == pb.Load()


async def test_an_aborted_sequence_ends_in_the_next_step() -> None:
    """Running or waiting, it ends in the next step without a further token."""
    async with simulation(SimulationSettings(step_ms=0, max_num_seqs=2)) as sim:
        first, second, third = await sim.submit(n=3)
        await sim.step()
        await sim.engine.abort([first, third])
        await sim.engine.abort([first])
        step = await sim.step()
        assert [(sequence, finish.reason) for sequence, finish in step.finishes] == [
            (first, pb.FINISH_REASON_ABORT),
            (third, pb.FINISH_REASON_ABORT),
        ]
        assert step.sequences == [second]
        await sim.finish()
        assert [len(sim.results[sequence].ids) for sequence in (first, second, third)] == [1, 20, 0]


async def test_a_pause_with_abort_ends_sequences() -> None:
    """All sequences end; a request made during the pause runs after the resume."""
    async with simulation() as sim:
        await sim.submit(n=2)
        await sim.step()
        await sim.engine.pause(PauseMode.ABORT, clear_cache=True)
        (held,) = await sim.submit()
        step = await sim.step()
        assert [finish.reason for _, finish in step.finishes] == [pb.FINISH_REASON_ABORT] * 2
        assert await sim.engine.is_paused()
        assert not sim.results[held].ids
        await sim.engine.resume()
        await sim.finish()
        assert len(sim.results[held].ids) == 20


async def test_a_pause_with_keep_freezes_sequences() -> None:
    """They continue with the same tokens even if the cache was cleared."""
    async with simulation() as sim:
        expected = await sim.run(max_tokens=60)
        kept, aborted = (*await sim.submit(max_tokens=60), *await sim.submit(LONG))
        for _ in range(7):
            await sim.step()
        await sim.engine.pause(PauseMode.KEEP, clear_cache=True)
        await sim.engine.abort([aborted])
        step = await sim.step()
        assert (step.sequences, len(step.finishes)) == ([], 1)
        await sim.engine.resume()
        await sim.finish()
        assert sim.results[kept].ids == expected.ids


async def test_a_pause_with_wait_finishes_sequences() -> None:
    """It returns when the sequences have ended, and holds new ones."""
    async with simulation() as sim:
        (running,) = await sim.submit()
        pausing = asyncio.ensure_future(sim.engine.pause(PauseMode.WAIT, clear_cache=False))
        await asyncio.sleep(0)
        (held,) = await sim.submit()
        while not sim.results[running].finish.reason:
            await sim.step()
        stepping = asyncio.ensure_future(sim.step())
        await pausing
        assert (len(sim.results[running].ids), len(sim.results[held].ids)) == (20, 0)
        await sim.engine.resume()
        await stepping
        await sim.finish()
        assert len(sim.results[held].ids) == 20


async def test_a_resume_ends_a_waiting_pause() -> None:
    """A resume ends a pause that is still waiting."""
    async with simulation() as sim:
        await sim.submit()
        pausing = asyncio.ensure_future(sim.engine.pause(PauseMode.WAIT, clear_cache=True))
        await asyncio.sleep(0)
        await sim.engine.resume()
        await pausing
        assert not await sim.engine.is_paused()
        await sim.finish()


async def test_sleep_lasts_until_all_memory_is_awake() -> None:
    """A sleeping engine is paused until all of its memory is woken up."""
    async with simulation() as sim:
        await sim.engine.sleep(1, PauseMode.ABORT)
        assert await sim.engine.is_sleeping()
        await sim.engine.wake_up(["weights"])
        assert await sim.engine.is_paused()
        await sim.engine.wake_up(["kv_cache"])
        assert not await sim.engine.is_sleeping()
        await sim.engine.sleep(0, PauseMode.KEEP)
        await sim.engine.wake_up([])
        assert len((await sim.run()).ids) == 20
        with pytest.raises(InvalidRequest, match="unknown tags"):
            await sim.engine.wake_up(["everything"])


async def test_a_cache_in_use_is_not_cleared() -> None:
    """The cache is not cleared while it is in use, unless running requests may be preempted."""
    async with simulation() as sim:
        expected = (await sim.run(LONG)).ids
        (sequence,) = await sim.submit(LONG)
        await sim.step()
        assert not await sim.engine.reset_cache(reset_running_requests=False, reset_external=False)
        assert await sim.engine.reset_cache(reset_running_requests=True, reset_external=False)
        await sim.finish()
        assert sim.results[sequence].ids == expected
        assert await sim.engine.reset_cache(reset_running_requests=False, reset_external=False)
        assert (await sim.run(LONG)).cached_tokens == 0


async def test_steps_have_the_weight_version() -> None:
    """A label, set by itself or at the end of an update, is on the steps that follow."""
    async with simulation(FAST) as sim:
        await sim.submit()
        labels = [(await sim.step()).weight_version]
        await sim.engine.set_weight_version("2")
        labels.append((await sim.step()).weight_version)
        with pytest.raises(InvalidRequest, match="needs a start"):
            await sim.engine.update_weights("finish", {})
        for stage in ("init", "start", "update"):
            await sim.engine.update_weights(stage, {})
        await sim.engine.update_weights("finish", {"weight_version": "3"})
        labels.append((await sim.step()).weight_version)
        assert labels == ["default", "2", "3"]
        assert await sim.engine.get_weight_version() == "3"
