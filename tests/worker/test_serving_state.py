"""What fleet operations leave behind in a worker: the state that it announces, and whose operation counts."""

import asyncio
from pathlib import Path

import pytest

from tests.worker.steered import ADAPTER, Steered
from tokenwire.errors import EngineFailed, InvalidRequest, NotFound, Superseded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import PauseMode, Sequence
from tokenwire.worker.frame_buffer import Outbox


async def test_every_operation_is_told_with_its_epoch(one: Steered, tmp_path: Path) -> None:
    """Each change is announced once, with a growing revision, the operation's epoch and what it led to."""
    steering = one.steering
    await steering.pause(1, PauseMode.KEEP, clear_cache=False)
    await steering.load_weights(2, str(tmp_path), "v2", reset_prefix_cache=False)
    await steering.load_lora(3, ADAPTER)
    await steering.resume(4)

    assert [state.revision for state in one.announced] == [1, 2, 3, 4, 5]
    assert [state.epoch for state in one.announced] == [0, 1, 2, 3, 4]
    assert [state.paused for state in one.announced] == [False, True, True, True, False]
    assert (one.state.weight_version, one.state.weights_path, one.state.weights_epoch) == ("v2", str(tmp_path), 2)
    assert list(one.state.adapters) == [ADAPTER]


@pytest.mark.parametrize("path", ["/nowhere", "x" * 5000, "a\0b"])
async def test_weights_from_nowhere_are_not_found(one: Steered, path: str) -> None:
    """Also from a path that no file system takes."""
    with pytest.raises(NotFound, match="finds no directory"):
        await one.steering.load_weights(1, path, "v", False)


async def test_an_older_operation_comes_too_late(one: Steered) -> None:
    """One that was begun before the last one changes nothing and says so."""
    await one.steering.pause(5, PauseMode.KEEP, clear_cache=False)

    with pytest.raises(Superseded, match="operation 5"):
        await one.steering.resume(4)

    assert one.state.paused
    assert one.state.epoch == 5


async def test_what_is_changed_beside_the_fleet_is_marked(one: Steered) -> None:
    """A change without an epoch keeps the epoch and says so, until the next operation."""
    await one.steering.pause(5, PauseMode.KEEP, clear_cache=False)
    await one.steering.resume(0)
    assert (one.state.epoch, one.state.strayed, one.state.paused) == (5, True, False)

    await one.steering.set_weight_version(6, "v6")

    assert (one.state.epoch, one.state.strayed) == (6, False)


async def test_a_resume_ends_a_pause_that_waits(one: Steered) -> None:
    """It does not queue behind the pause, and the state tells what the engine does."""
    sequence = Sequence(Outbox(), 0, "request", 0)
    submit = pb.Submit(prompt_token_ids=[65], sampling_params=pb.SamplingParams(max_tokens=5_000))
    await one.engine.submit(submit, [sequence])
    steps = one.engine.steps()
    await anext(steps)
    pausing = asyncio.create_task(one.steering.pause(1, PauseMode.WAIT, clear_cache=False))
    await one.engine.pausing.wait()

    await one.steering.resume(2)

    await asyncio.wait_for(pausing, 10)
    assert not one.state.paused


async def test_sleep_is_told_part_by_part(one: Steered) -> None:
    """Level and woken parts are known while the engine sleeps, and gone when it is awake."""
    await one.steering.sleep(1, 1, PauseMode.ABORT)
    await one.steering.wake_up(2, ["weights"])
    assert (one.state.sleeping, one.state.sleep_level, list(one.state.awake_parts)) == (True, 1, ["weights"])

    await one.steering.wake_up(3, ["kv_cache"])

    assert (one.state.sleeping, one.state.paused, list(one.state.awake_parts)) == (False, False, [])


async def test_an_adapter_takes_the_place_of_its_namesake(one: Steered) -> None:
    """The engine keeps only the newer one."""
    newer = pb.LoraAdapter(name="red", id=8, path="/adapters/red-2")
    await one.steering.load_lora(1, ADAPTER)
    await one.steering.load_lora(2, newer)

    assert list(one.state.adapters) == [newer]
    assert await one.engine.list_loras() == [8]


async def test_a_call_that_breaks_while_it_reads_weights_keeps_the_worker_out(one: Steered) -> None:
    """As any other way to read them does; a call that reads none leaves no trace."""
    one.engine.breaks = "torn"
    with pytest.raises(EngineFailed):
        await one.steering.collective_rpc("profile", None, [], {})
    assert not one.announced[-1].weights_fault
    with pytest.raises(EngineFailed):
        await one.steering.collective_rpc("reload_weights", None, [None, "/other"], {})
    assert one.state.weights_fault == "torn"

    one.engine.breaks = ""
    await one.steering.collective_rpc("reload_weights", None, [None, "/other"], {})
    assert one.state.strayed


async def test_weights_come_only_from_where_they_may(tmp_path: Path) -> None:
    """A path that is not there, or leads out of the roots, is refused before the engine hears of it."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    steered = await Steered((inside,)).start()
    steering = steered.steering

    for path in (outside, inside / "link", inside / ".." / "outside"):
        with pytest.raises(InvalidRequest, match="only from"):
            await steering.load_weights(1, str(path), "v", reset_prefix_cache=False)
    with pytest.raises(InvalidRequest, match="only from"):
        await steering.load_lora(1, ADAPTER)
    with pytest.raises(NotFound, match="no directory"):
        await steering.load_weights(1, str(inside / "missing"), "v", reset_prefix_cache=False)

    assert not steered.engine.read
    assert steered.state.epoch == 0
    assert not steered.state.weights_fault
    await steered.engine.stop()


async def test_weights_that_broke_on_the_way_are_told(one: Steered, tmp_path: Path) -> None:
    """When reading fails nobody knows what the engine has: the fault stays until weights were read whole."""
    one.engine.breaks = "shapes differ"
    with pytest.raises(EngineFailed):
        await one.steering.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)
    assert (one.state.epoch, one.state.weights_fault, one.state.weights_epoch) == (0, "shapes differ", 0)

    one.engine.breaks = ""
    await one.steering.load_weights(2, str(tmp_path), "v2", reset_prefix_cache=False)

    assert (one.state.epoch, one.state.weights_fault, one.state.weights_epoch) == (2, "", 2)


async def test_a_transfer_that_was_not_begun_does_no_harm(one: Steered) -> None:
    """An update is a risk for the weights only between start and finish."""
    one.engine.breaks = "not initialized"
    with pytest.raises(EngineFailed):
        await one.steering.update_weights(1, "update", {})
    assert "not initialized" not in one.state.weights_fault

    one.engine.breaks = ""
    await one.steering.update_weights(2, "start", {})
    one.engine.breaks = "lost a peer"
    with pytest.raises(EngineFailed):
        await one.steering.update_weights(3, "update", {})

    assert "lost a peer" in one.state.weights_fault


async def test_a_torn_transfer_is_mended_by_a_whole_one(one: Steered) -> None:
    """Parts that arrive after one was lost mend nothing; a transfer from start to finish does."""
    steering = one.steering
    await steering.update_weights(1, "start", {})
    one.engine.breaks = "lost a peer"
    with pytest.raises(EngineFailed):
        await steering.update_weights(2, "update", {})
    one.engine.breaks = ""
    await steering.update_weights(3, "update", {})
    await steering.update_weights(4, "finish", {})
    assert one.state.weights_fault

    for epoch, stage in enumerate(("start", "update", "finish"), start=5):
        await steering.update_weights(epoch, stage, {})

    assert not one.state.weights_fault


async def test_an_operation_outlives_its_caller(one: Steered, tmp_path: Path) -> None:
    """A coordinator that dies, or waits no longer, leaves a worker that says what it has become."""
    one.engine.may_read.clear()
    loading = asyncio.create_task(one.steering.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False))
    await one.engine.reading.wait()

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    one.engine.may_read.set()
    await one.steering.set_weight_version(2, "v2")

    assert [state.weight_version for state in one.announced] == ["default", "v1", "v2"]
    assert one.state.weights_path == str(tmp_path)
