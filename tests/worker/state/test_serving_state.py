"""The serving state after admin operations, which operations are superseded, and adoption of a fleet's state.

One file, since all tests are of one class.
"""

import asyncio
from pathlib import Path

import pytest

from tests.worker.serving import ADAPTER, ServingWorker
from tokenwire.errors import CannotAdopt, EngineFailed, InvalidRequest, NotFound, Superseded
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.frame_buffer import FrameBuffer
from tokenwire.worker.engine.interface import EngineSequence, PauseMode


async def test_every_operation_is_published_with_its_epoch(one: ServingWorker, tmp_path: Path) -> None:
    """Each change is published once, with an increasing revision, the operation's epoch and its outcome."""
    controller = one.controller
    await controller.pause(1, PauseMode.KEEP, clear_cache=False)
    await controller.load_weights(2, str(tmp_path), "v2", reset_prefix_cache=False)
    await controller.load_lora(3, ADAPTER)
    await controller.resume(4)

    assert [state.revision for state in one.published] == [1, 2, 3, 4, 5]
    assert [state.epoch for state in one.published] == [0, 1, 2, 3, 4]
    assert [state.paused for state in one.published] == [False, True, True, True, False]
    assert (one.state.weight_version, one.state.weights_path, one.state.weights_epoch) == ("v2", str(tmp_path), 2)
    assert list(one.state.adapters) == [ADAPTER]


@pytest.mark.parametrize("path", ["/nowhere", "x" * 5000, "a\0b"])
async def test_a_missing_weights_directory_is_not_found(one: ServingWorker, path: str) -> None:
    """Also with a path that no file system accepts."""
    with pytest.raises(NotFound, match="no directory"):
        await one.controller.load_weights(1, path, "v", False)


@pytest.mark.parametrize("reset", [True, False])
async def test_weights_are_loaded_with_a_reset_of_the_prefix_cache_if_asked(
    one: ServingWorker, tmp_path: Path, reset: bool
) -> None:
    """What was computed with other weights is of no use then."""
    await one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=reset)

    assert one.engine.resets == int(reset)


async def test_an_older_operation_is_superseded(one: ServingWorker) -> None:
    """One that is older than the last one changes nothing and raises Superseded."""
    await one.controller.pause(5, PauseMode.KEEP, clear_cache=False)

    with pytest.raises(Superseded, match="operation 5"):
        await one.controller.resume(4)

    assert one.state.paused
    assert one.state.epoch == 5


async def test_a_change_outside_fleet_operations_is_marked_as_unmanaged(one: ServingWorker) -> None:
    """A change without an epoch keeps the state's epoch and marks it, until the next operation."""
    await one.controller.pause(5, PauseMode.KEEP, clear_cache=False)
    await one.controller.resume(0)
    assert (one.state.epoch, one.state.unmanaged, one.state.paused) == (5, True, False)

    await one.controller.set_weight_version(6, "v6")

    assert (one.state.epoch, one.state.unmanaged) == (6, False)


async def test_a_resume_ends_a_waiting_pause(one: ServingWorker) -> None:
    """It does not queue behind the pause, is what came last, and the state matches the engine's."""
    sequence = EngineSequence(FrameBuffer(), 0, "request", 0)
    submit = pb.Submit(prompt_token_ids=[65], sampling_params=pb.SamplingParams(max_tokens=5_000))
    await one.engine.submit(submit, [sequence])
    steps = one.engine.steps()
    await anext(steps)
    pausing = asyncio.create_task(one.controller.pause(1, PauseMode.WAIT, clear_cache=False))
    await one.engine.pausing.wait()

    await one.controller.resume(2)

    await asyncio.wait_for(pausing, 10)
    assert not one.state.paused
    assert one.state.epoch == 2


async def test_an_older_resume_does_not_end_a_waiting_pause(one: ServingWorker) -> None:
    """The pause is newer, so it would be confirmed although the engine runs."""
    submit = pb.Submit(prompt_token_ids=[65], sampling_params=pb.SamplingParams(max_tokens=5_000))
    await one.engine.submit(submit, [EngineSequence(FrameBuffer(), 0, "request", 0)])
    steps = one.engine.steps()
    await anext(steps)
    pausing = asyncio.create_task(one.controller.pause(2, PauseMode.WAIT, clear_cache=False))
    await one.engine.pausing.wait()

    with pytest.raises(Superseded, match="operation 2"):
        await one.controller.resume(1)

    assert not pausing.done()
    await one.controller.resume(3)
    await asyncio.wait_for(pausing, 10)
    assert not one.state.paused


async def test_operations_are_executed_in_order_of_arrival(one: ServingWorker) -> None:
    """Also a resume, and if they arrive at the same time."""
    await asyncio.gather(one.controller.resume(1), one.controller.set_weight_version(2, "v2"), one.controller.resume(3))

    assert [state.epoch for state in one.published] == [0, 1, 2, 3]


async def test_a_resume_waits_for_weights_that_are_being_read(one: ServingWorker, tmp_path: Path) -> None:
    """Otherwise its state, the newest, would have the old weights, and all workers would be reconciled to them."""
    one.engine.may_read.clear()
    loading = asyncio.create_task(one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False))
    await one.engine.reading.wait()
    resuming = asyncio.create_task(one.controller.resume(2))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(resuming), 0.05)

    one.engine.may_read.set()
    await asyncio.gather(loading, resuming)

    assert [(state.epoch, state.weight_version) for state in one.published] == [(0, "default"), (1, "v1"), (2, "v1")]


async def test_the_state_has_sleep_level_and_awake_parts(one: ServingWorker) -> None:
    """They are set while the engine sleeps, and cleared when it is awake."""
    await one.controller.sleep(1, 1, PauseMode.ABORT)
    await one.controller.wake_up(2, ["weights"])
    assert (one.state.sleeping, one.state.sleep_level, list(one.state.awake_parts)) == (True, 1, ["weights"])

    await one.controller.wake_up(3, ["kv_cache"])

    assert (one.state.sleeping, one.state.paused, list(one.state.awake_parts)) == (False, False, [])


async def test_an_adapter_replaces_another_of_its_name(one: ServingWorker) -> None:
    """The engine keeps only the newer one."""
    newer = pb.LoraAdapter(name="red", id=8, path="/adapters/red-2")
    await one.controller.load_lora(1, ADAPTER)
    await one.controller.load_lora(2, newer)

    assert list(one.state.adapters) == [newer]
    assert await one.engine.list_loras() == [8]


async def test_an_adapter_that_a_late_request_brought_back_goes_with_the_next_operation(one: ServingWorker) -> None:
    """It was under way while its adapter was replaced, and no state lists what it had loaded."""
    newer = pb.LoraAdapter(name="red", id=8, path="/adapters/red-2")
    other = pb.LoraAdapter(name="blue", id=9, path="/adapters/blue")
    await one.controller.load_lora(1, ADAPTER)
    await one.controller.load_lora(2, newer)
    submit = pb.Submit(prompt_token_ids=[65], sampling_params=pb.SamplingParams(max_tokens=1), lora=ADAPTER)
    await one.engine.submit(submit, [EngineSequence(FrameBuffer(), 0, "request", 0)])
    assert await one.engine.list_loras() == sorted([ADAPTER.id, 8])

    await one.controller.load_lora(3, other)

    assert await one.engine.list_loras() == [8, 9]


async def test_a_call_that_fails_while_reading_weights_records_a_fault(one: ServingWorker) -> None:
    """As any other way of reading weights does; a call that reads none records nothing."""
    one.engine.error = "torn"
    with pytest.raises(EngineFailed):
        await one.controller.collective_rpc("profile", None, [], {})
    assert not one.published[-1].weights_fault
    with pytest.raises(EngineFailed):
        await one.controller.collective_rpc("reload_weights", None, [None, "/other"], {})
    assert one.state.weights_fault == "torn"

    one.engine.error = ""
    await one.controller.collective_rpc("reload_weights", None, [None, "/other"], {})
    assert one.state.unmanaged


async def test_weights_are_read_only_from_the_roots(tmp_path: Path) -> None:
    """A path that is missing, or leads out of the roots, is refused before it reaches the engine."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    serving = await ServingWorker((inside,)).start()
    controller = serving.controller

    for path in (outside, inside / "link", inside / ".." / "outside"):
        with pytest.raises(InvalidRequest, match="only from"):
            await controller.load_weights(1, str(path), "v", reset_prefix_cache=False)
    with pytest.raises(InvalidRequest, match="only from"):
        await controller.load_lora(1, ADAPTER)
    with pytest.raises(NotFound, match="no directory"):
        await controller.load_weights(1, str(inside / "missing"), "v", reset_prefix_cache=False)

    assert not serving.engine.read
    assert serving.state.epoch == 0
    assert not serving.state.weights_fault
    await serving.engine.stop()


async def test_a_failed_read_of_weights_is_a_fault_until_the_next_complete_one(
    one: ServingWorker, tmp_path: Path
) -> None:
    """When reading fails, the engine's weights are unknown: the fault stays until a complete read."""
    one.engine.error = "shapes differ"
    with pytest.raises(EngineFailed):
        await one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)
    assert (one.state.epoch, one.state.weights_fault, one.state.weights_epoch) == (0, "shapes differ", 0)

    one.engine.error = ""
    await one.controller.load_weights(2, str(tmp_path), "v2", reset_prefix_cache=False)

    assert (one.state.epoch, one.state.weights_fault, one.state.weights_epoch) == (2, "", 2)


async def test_a_failed_update_before_a_transfer_is_no_fault(one: ServingWorker) -> None:
    """An update can leave inconsistent weights only between start and finish."""
    one.engine.error = "not initialized"
    with pytest.raises(EngineFailed):
        await one.controller.update_weights(1, "update", {})
    assert "not initialized" not in one.state.weights_fault

    one.engine.error = ""
    await one.controller.update_weights(2, "start", {})
    one.engine.error = "lost a peer"
    with pytest.raises(EngineFailed):
        await one.controller.update_weights(3, "update", {})

    assert "lost a peer" in one.state.weights_fault


async def test_a_complete_transfer_clears_the_fault_of_an_interrupted_one(one: ServingWorker) -> None:
    """Updates after a failed one do not clear it; a transfer from start to finish does."""
    controller = one.controller
    await controller.update_weights(1, "start", {})
    one.engine.error = "lost a peer"
    with pytest.raises(EngineFailed):
        await controller.update_weights(2, "update", {})
    one.engine.error = ""
    await controller.update_weights(3, "update", {})
    await controller.update_weights(4, "finish", {})
    assert one.state.weights_fault

    for epoch, stage in enumerate(("start", "update", "finish"), start=5):
        await controller.update_weights(epoch, stage, {})

    assert not one.state.weights_fault


async def test_an_operation_outlives_its_caller(one: ServingWorker, tmp_path: Path) -> None:
    """If the calling coordinator dies or gives up, the operation completes and its state is published."""
    one.engine.may_read.clear()
    loading = asyncio.create_task(one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False))
    await one.engine.reading.wait()

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    one.engine.may_read.set()
    await one.controller.set_weight_version(2, "v2")

    assert [state.weight_version for state in one.published] == ["default", "v1", "v2"]
    assert one.state.weights_path == str(tmp_path)


def content(state: pb.ServingState) -> pb.ServingState:
    """Return a copy of a state without its revision."""
    copy = pb.ServingState()
    copy.CopyFrom(state)
    copy.revision = 0
    return copy


async def test_a_new_worker_adopts_the_fleets_state(one: ServingWorker, other: ServingWorker, tmp_path: Path) -> None:
    """Weights, label, adapters and pause are adopted, extra adapters are unloaded, and the epochs are equal."""
    await one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)
    await one.controller.load_lora(2, ADAPTER)
    await one.controller.pause(3, PauseMode.KEEP, clear_cache=False)
    await other.controller.load_lora(1, pb.LoraAdapter(name="blue", id=9, path="/adapters/blue"))

    await other.controller.adopt(one.state)

    assert content(other.state) == content(one.state)
    assert other.engine.read == [str(tmp_path)]
    assert await other.engine.list_loras() == [7]
    assert await other.engine.is_paused()


async def test_a_new_worker_adopts_sleep_part_by_part(one: ServingWorker, other: ServingWorker) -> None:
    """A partial wake-up is adopted, and so is a full one."""
    await one.controller.sleep(1, 1, PauseMode.ABORT)
    await one.controller.wake_up(2, ["weights"])
    await other.controller.adopt(one.state)
    assert content(other.state) == content(one.state)
    assert await other.engine.is_sleeping()

    await one.controller.wake_up(3, [])
    await other.controller.adopt(one.state)

    assert content(other.state) == content(one.state)
    assert not await other.engine.is_sleeping()


async def test_adoption_is_idempotent(one: ServingWorker, other: ServingWorker, tmp_path: Path) -> None:
    """Two coordinators may reconcile the same worker at once."""
    await one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)

    await asyncio.gather(other.controller.adopt(one.state), other.controller.adopt(one.state))

    assert other.engine.read == [str(tmp_path)]


async def test_transferred_weights_cannot_be_adopted(one: ServingWorker, other: ServingWorker) -> None:
    """The error names the reason and the remedy, and the new worker keeps its epoch."""
    await one.controller.update_weights(1, "start", {})
    await one.controller.update_weights(2, "update", {})
    await one.controller.update_weights(3, "finish", {"weight_version": "v3"})

    with pytest.raises(CannotAdopt, match="update the weights of all workers again"):
        await other.controller.adopt(one.state)

    assert (other.state.epoch, other.state.weights_epoch) == (0, 0)


async def test_a_new_worker_with_a_fault_reloads_its_initial_weights(one: ServingWorker, other: ServingWorker) -> None:
    """If the fleet still has the initial weights, reloading them clears a weights fault."""
    await one.controller.set_weight_version(1, "start")
    other.engine.error = "torn"
    with pytest.raises(EngineFailed):
        await other.controller.load_weights(1, "/", "v", reset_prefix_cache=False)
    other.engine.error = ""

    await other.controller.adopt(one.state)

    assert other.engine.read == ["/", ""]
    assert content(other.state) == content(one.state)


async def test_an_operation_runs_even_if_its_epoch_was_adopted_first(one: ServingWorker, other: ServingWorker) -> None:
    """A state is less than an operation: a transfer that another worker has started must start here too."""
    await one.controller.update_weights(1, "start", {})
    await other.controller.adopt(one.state)

    await other.controller.update_weights(1, "start", {})
    await other.controller.update_weights(2, "update", {})

    assert other.state.weights_epoch == 2


def ordered_by(epoch: int, **fields: object) -> pb.OperationRecord:
    """Return the record of an operation."""
    operation = pb.Operation(model="simulated", epoch=epoch, **fields)  # type: ignore[arg-type]
    return pb.OperationRecord(operation=operation.SerializeToString(), signatures=[b"signature"])


PAUSE = ordered_by(1, pause=pb.PauseState(paused=True))
RESUME = ordered_by(2, pause=pb.PauseState())
LABEL = ordered_by(3, weight_version="v3")


async def test_records_are_stored_when_their_operations_are_carried_out(one: ServingWorker) -> None:
    """And repeated until newer ones replace them; that of an operation that fails is not."""
    controller = one.controller
    await controller.pause(1, PauseMode.KEEP, False, [PAUSE])
    await controller.resume(2, [RESUME])
    await controller.set_weight_version(3, "v3", [LABEL])
    with pytest.raises(NotFound):
        await controller.load_weights(4, "/nowhere", "v", False, [ordered_by(4, weights=pb.Weights(epoch=4))])

    assert list(one.state.records) == [RESUME, LABEL]
    assert [list(state.records) for state in one.published[1:3]] == [[PAUSE], [RESUME]]


async def test_a_change_by_others_keeps_the_records(one: ServingWorker) -> None:
    """What was ordered still is."""
    await one.controller.pause(1, PauseMode.KEEP, False, [PAUSE])
    await one.controller.resume(0)

    assert (list(one.state.records), one.state.unmanaged) == ([PAUSE], True)


async def test_an_operation_without_a_record_leaves_none(one: ServingWorker) -> None:
    """As an older coordinator orders it: they would say something else than the state."""
    await one.controller.pause(1, PauseMode.KEEP, False, [PAUSE])
    await one.controller.resume(2)

    assert not one.state.records


async def test_a_worker_adopts_records_and_keeps_newer_ones_of_its_own(one: ServingWorker) -> None:
    """A coordinator that has not heard of an operation does not undo it."""
    await one.controller.set_weight_version(3, "v3", [LABEL])
    older = ordered_by(2, weight_version="v2")
    target = pb.ServingState(epoch=3, paused=True, weight_version="v2", records=[PAUSE, older])

    await one.controller.adopt(target)

    assert (one.state.paused, one.state.weight_version) == (True, "v3")
    assert list(one.state.records) == [PAUSE, LABEL]


async def test_an_engine_that_sleeps_again_has_no_part_awake(one: ServingWorker) -> None:
    """Otherwise the parts that were woken up before would still be announced."""
    await one.controller.sleep(1, 1, PauseMode.ABORT)
    await one.controller.wake_up(2, ["weights"])
    await one.controller.sleep(3, 1, PauseMode.ABORT)

    assert (one.state.sleeping, list(one.state.awake_parts)) == (True, [])


async def test_a_label_that_nobody_ordered_is_the_workers_own(one: ServingWorker, tmp_path: Path) -> None:
    """When it goes back to the weights that it started with."""
    await one.controller.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)

    await one.controller.adopt(pb.ServingState(epoch=2, records=[ordered_by(2)]))

    assert (one.state.weights_epoch, one.state.weight_version) == (0, "default")
