"""A worker that missed operations becomes like one that carried them out."""

import asyncio
from pathlib import Path

import pytest

from tests.worker.steered import ADAPTER, Steered
from tokenwire.errors import CannotAdopt, EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine import PauseMode


def content(state: pb.ServingState) -> pb.ServingState:
    """Return a state without what counts its changes."""
    copy = pb.ServingState()
    copy.CopyFrom(state)
    copy.revision = 0
    return copy


async def test_a_newcomer_becomes_like_the_others(one: Steered, other: Steered, tmp_path: Path) -> None:
    """Weights, label, adapters and pause are taken over, what is too much goes, and the epochs are equal."""
    await one.steering.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)
    await one.steering.load_lora(2, ADAPTER)
    await one.steering.pause(3, PauseMode.KEEP, clear_cache=False)
    await other.steering.load_lora(1, pb.LoraAdapter(name="blue", id=9, path="/adapters/blue"))

    await other.steering.adopt(one.state)

    assert content(other.state) == content(one.state)
    assert other.engine.read == [str(tmp_path)]
    assert await other.engine.list_loras() == [7]
    assert await other.engine.is_paused()


async def test_a_newcomer_falls_asleep_as_far_as_the_others(one: Steered, other: Steered) -> None:
    """A partly woken sleep is taken over, and so is being awake."""
    await one.steering.sleep(1, 1, PauseMode.ABORT)
    await one.steering.wake_up(2, ["weights"])
    await other.steering.adopt(one.state)
    assert content(other.state) == content(one.state)
    assert await other.engine.is_sleeping()

    await one.steering.wake_up(3, [])
    await other.steering.adopt(one.state)

    assert content(other.state) == content(one.state)
    assert not await other.engine.is_sleeping()


async def test_adopting_twice_does_nothing_twice(one: Steered, other: Steered, tmp_path: Path) -> None:
    """Two coordinators may bring the same worker along."""
    await one.steering.load_weights(1, str(tmp_path), "v1", reset_prefix_cache=False)

    await asyncio.gather(other.steering.adopt(one.state), other.steering.adopt(one.state))

    assert other.engine.read == [str(tmp_path)]


async def test_transferred_weights_cannot_be_adopted(one: Steered, other: Steered) -> None:
    """The refusal says why and what to do, and the newcomer keeps its epoch."""
    await one.steering.update_weights(1, "start", {})
    await one.steering.update_weights(2, "update", {})
    await one.steering.update_weights(3, "finish", {"weight_version": "v3"})

    with pytest.raises(CannotAdopt, match="update the weights of all workers again"):
        await other.steering.adopt(one.state)

    assert (other.state.epoch, other.state.weights_epoch) == (0, 0)


async def test_a_broken_newcomer_reads_its_first_weights_again(one: Steered, other: Steered) -> None:
    """Where the others still have the weights of the start, a fault is mended with those."""
    await one.steering.set_weight_version(1, "start")
    other.engine.breaks = "torn"
    with pytest.raises(EngineFailed):
        await other.steering.load_weights(1, "/", "v", reset_prefix_cache=False)
    other.engine.breaks = ""

    await other.steering.adopt(one.state)

    assert other.engine.read == ["/", ""]
    assert content(other.state) == content(one.state)


async def test_an_operation_that_was_adopted_first_is_carried_out_all_the_same(one: Steered, other: Steered) -> None:
    """A state says less than an operation: a transfer that another worker has begun must begin here too."""
    await one.steering.update_weights(1, "start", {})
    await other.steering.adopt(one.state)

    await other.steering.update_weights(1, "start", {})
    await other.steering.update_weights(2, "update", {})

    assert other.state.weights_epoch == 2
