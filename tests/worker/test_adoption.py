"""A worker that missed admin operations adopts the state of one that applied them."""

import asyncio
from pathlib import Path

import pytest

from tests.worker.serving import ADAPTER, ServingWorker
from tokenwire.errors import CannotAdopt, EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import PauseMode


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
    """The error says why and what to do, and the new worker keeps its epoch."""
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
