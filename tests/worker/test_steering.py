"""What fleet operations leave behind in a worker: the state that it announces, and whose operation counts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tokenwire.errors import CannotAdopt, EngineFailed, InvalidRequest, NotFound, Superseded
from tokenwire.v1 import inference_pb2 as pb
from worker.engine import PauseMode, Sequence
from worker.outbox import Outbox
from worker.simulated_engine.engine import SimulatedEngine
from worker.simulated_engine.settings import SimulationSettings
from worker.steering import Steering

ADAPTER = pb.LoraAdapter(name="red", id=7, path="/adapters/red")


class Engine(SimulatedEngine):
    """A simulated engine that notes which weights it read, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=1))
        self.read: list[str] = []
        self.breaks = ""
        self.pausing = asyncio.Event()
        """Set when a pause began."""
        self.reading = asyncio.Event()
        """Set when reading of weights began."""
        self.may_read = asyncio.Event()
        """Set when it may end; it may unless a test says otherwise."""
        self.may_read.set()

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Say that it began."""
        self.pausing.set()
        await super().pause(mode, clear_cache)

    async def load_weights(self, path: str) -> None:
        """Note it, or break."""
        self.read.append(path)
        self.reading.set()
        await self.may_read.wait()
        if self.breaks:
            raise EngineFailed(self.breaks)
        await super().load_weights(path)

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Break, or take part."""
        if self.breaks:
            raise EngineFailed(self.breaks)
        await super().update_weights(stage, arguments)


class Steered:
    """An engine, its steering, and what that announced."""

    def __init__(self, roots: tuple[Path, ...] = ()) -> None:
        self.engine = Engine()
        self.announced: list[pb.ServingState] = []
        self.steering = Steering(self.engine, self.announced.append, roots)

    async def start(self) -> "Steered":
        """Start both."""
        await self.engine.start()
        await self.steering.start()
        return self

    @property
    def state(self) -> pb.ServingState:
        """The newest announcement."""
        assert self.announced[-1] == self.steering.state
        return self.announced[-1]


@pytest.fixture
async def one() -> AsyncIterator[Steered]:
    """A worker's steering."""
    steered = await Steered().start()
    yield steered
    await steered.engine.stop()


@pytest.fixture
async def other() -> AsyncIterator[Steered]:
    """Another worker's."""
    steered = await Steered().start()
    yield steered
    await steered.engine.stop()


def content(state: pb.ServingState) -> pb.ServingState:
    """Return a state without what counts its changes."""
    copy = pb.ServingState()
    copy.CopyFrom(state)
    copy.revision = 0
    return copy


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


async def test_an_older_operation_comes_too_late(one: Steered) -> None:
    """One that was begun before the last one changes nothing and says so; the last one itself is done once."""
    await one.steering.pause(5, PauseMode.KEEP, clear_cache=False)

    with pytest.raises(Superseded, match="operation 5"):
        await one.steering.resume(4)
    await one.steering.resume(5)

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
