"""Admin operations on real workers: results of all workers, and workers that return.

One file, since all of them need the same workers.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.workers import (
    Listener,
    SessionContext,
    accept,
    running_worker,
    scripted_worker,
    send,
    submission,
    unix_address,
    until,
)
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.errors import FleetFailed, InvalidRequest, NotFound, Unavailable, Unsupported
from tokenwire.peer_auth.grpc_options import open_channel
from tokenwire.v1 import control_pb2, control_pb2_grpc
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

NAMES = ("one", "two", "three")


class CoordinatorFleet:
    """The admin operations of a coordinator, over sockets in a directory."""

    def __init__(self, folder: Path) -> None:
        self.desired = DesiredStates()
        self.pool = WorkerPool("test", accept, self.desired)
        self.admin = FleetAdmin(self.pool, self.desired, timeout_s=10)

    async def wait_ready(self, count: int) -> None:
        """Wait until a number of workers are connected."""
        await until(lambda: sum(session.state is SessionState.READY for session in self.pool.sessions) == count)

    def alike(self) -> int:
        """Count the connected workers that have not drifted."""
        sessions = [session for session in self.pool.sessions if session.control is not None]
        return sum(not self.desired.has_drifted(session.model_name, session.serving) for session in sessions)

    async def wait_alike(self, count: int) -> None:
        """Wait until a number of workers have not drifted."""
        await until(lambda: self.alike() == count)

    async def takers(self, lora: pb.LoraAdapter | None = None) -> set[str]:
        """Send requests when all earlier ones have ended; return the addresses that got them."""
        await until(lambda: self.pool.open_slots == 0)
        adapter_id = 0 if lora is None else lora.id
        placed = []
        for _ in range(min(30, self.pool.free_capacity("simulated", adapter_id))):
            submit = submission(1)
            if lora is not None:
                submit.lora.CopyFrom(lora)
            placed.append(send(self.pool, submit, [Listener()]))
        return {Path(each.session.address).stem for each in placed}


class RestartableWorkers:
    """Workers by name, which can be killed and restarted."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._workers: dict[str, AsyncExitStack] = {}

    async def start(self, *names: str) -> None:
        """Start workers."""
        for name in names:
            stack = await self._stack.enter_async_context(AsyncExitStack())
            await stack.enter_async_context(running_worker(unix_address(self._folder, name)))
            self._workers[name] = stack

    async def kill(self, name: str) -> None:
        """End a worker."""
        await self._workers[name].aclose()


@asynccontextmanager
async def running_admin(folder: Path) -> AsyncIterator[CoordinatorFleet]:
    """Run the admin operations of a coordinator."""
    coordinator = CoordinatorFleet(folder)
    coordinator.pool.update(unix_address(folder, name) for name in NAMES)
    try:
        yield coordinator
    finally:
        await coordinator.pool.stop()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[RestartableWorkers]:
    """Three workers."""
    async with AsyncExitStack() as stack:
        fleet = RestartableWorkers(tmp_path, stack)
        await fleet.start(*NAMES)
        yield fleet


@pytest.fixture
async def coordinator(tmp_path: Path, fleet: RestartableWorkers) -> AsyncIterator[CoordinatorFleet]:
    """A coordinator connected to all three."""
    async with running_admin(tmp_path) as coordinator:
        await coordinator.wait_ready(3)
        yield coordinator


async def test_an_operation_applies_to_all_workers(coordinator: CoordinatorFleet) -> None:
    """Every worker responds, and the state is known when the call returns."""
    results = await coordinator.admin.pause(None, "keep", clear_cache=False)

    assert [result.as_dict()["status"] for result in results] == ["ok"] * 3
    assert all(session.serving.paused for session in coordinator.pool.sessions)
    assert await coordinator.takers() == set(NAMES)  # the engines hold the requests


async def test_the_desired_state_outlives_all_workers(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers, tmp_path: Path
) -> None:
    """A worker found after all others have gone is brought to the state of the model."""
    await coordinator.admin.pause(None, "keep", clear_cache=False)
    await coordinator.admin.load_lora(None, "red", "/red")
    coordinator.pool.update([])
    await until(lambda: not coordinator.pool.sessions)
    await fleet.start("new")

    coordinator.pool.update([unix_address(tmp_path, "new")])

    await coordinator.wait_ready(1)
    await coordinator.wait_alike(1)
    (session,) = coordinator.pool.sessions
    assert session.serving.paused
    assert [adapter.name for adapter in session.serving.adapters] == ["red"]


async def test_another_coordinator_derives_the_same_state(coordinator: CoordinatorFleet, tmp_path: Path) -> None:
    """One coordinator's operation is the other's desired state, even for one that starts later."""
    async with running_admin(tmp_path) as other:
        await other.wait_ready(3)
        await coordinator.admin.load_lora(None, "red", "/red")
        await until(lambda: other.desired.adapter("red") is not None)
        async with running_admin(tmp_path) as later:
            await later.wait_ready(3)

            assert (
                later.desired.get("simulated") == other.desired.get("simulated") == coordinator.desired.get("simulated")
            )


async def test_a_dead_worker_is_reported_and_reconciled_later(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers, tmp_path: Path
) -> None:
    """The operation fails and names each worker; the others have the new weights and the traffic; the dead one gets
    requests when it has caught up."""
    await fleet.kill("two")
    await coordinator.wait_ready(2)

    with pytest.raises(FleetFailed, match="1 of 3") as caught:
        await coordinator.admin.load_weights(None, str(tmp_path), "v2", reset_prefix_cache=False)
    assert [worker["status"] for worker in caught.value.workers] == ["ok", "error", "ok"]
    assert await coordinator.takers() == {"one", "three"}

    await fleet.start("two")
    while coordinator.alike() < 3:
        takers = await coordinator.takers()
        assert takers == {"one", "three"} or coordinator.alike() == 3
        await asyncio.sleep(0.002)

    assert await coordinator.takers() == set(NAMES)
    assert [session.serving.weight_version for session in coordinator.pool.sessions] == ["v2"] * 3


async def test_a_worker_without_transferred_weights_is_out_of_sync(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers, tmp_path: Path
) -> None:
    """It gets no requests, with the reason, until the next update of all workers."""
    for stage, arguments in (("start", {}), ("update", {"update_info": {}}), ("finish", {"weight_version": "v3"})):
        await coordinator.admin.transfer(None, stage, arguments)
    await fleet.kill("two")
    await fleet.start("two")
    (session,) = [each for each in coordinator.pool.sessions if "two" in each.address]
    await until(lambda: "came by a transfer" in coordinator.pool.out_of_sync(session))
    assert await coordinator.takers() == {"one", "three"}

    await coordinator.admin.load_weights(None, str(tmp_path), "v4", reset_prefix_cache=False)

    assert not coordinator.pool.out_of_sync(session)
    assert await coordinator.takers() == set(NAMES)


async def test_requests_for_an_adapter_go_to_workers_that_loaded_it(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers
) -> None:
    """All have it under one id, a restarted one before it gets requests; after the unload none has it."""
    await coordinator.admin.load_lora(None, "red", "/red")
    adapter = coordinator.desired.adapter("red")
    assert adapter is not None
    assert await coordinator.takers(adapter.lora) == set(NAMES)
    await fleet.kill("one")
    await coordinator.wait_ready(2)
    await fleet.start("one")
    await coordinator.wait_ready(3)
    await coordinator.wait_alike(3)
    assert await coordinator.takers(adapter.lora) == set(NAMES)

    await coordinator.admin.unload_lora("red")

    assert await coordinator.takers(adapter.lora) == set()
    assert "the adapter is not loaded" in coordinator.pool.unavailable_reason("simulated", adapter.lora.id)


async def test_adapter_names_are_unique(coordinator: CoordinatorFleet) -> None:
    """A name in use is rejected unless it is to be replaced, with a new id; an unknown one cannot be unloaded."""
    admin = coordinator.admin
    await admin.load_lora(None, "red", "/red")
    first = coordinator.desired.adapter("red")
    with pytest.raises(InvalidRequest, match="already been loaded"):
        await admin.load_lora(None, "red", "/other")
    with pytest.raises(InvalidRequest, match="served base model"):
        await admin.load_lora(None, "simulated", "/other")
    with pytest.raises(NotFound, match="'blue' cannot be found"):
        await admin.unload_lora("blue")

    await admin.load_lora(None, "red", "/other", replace=True)

    (second,) = coordinator.desired.adapters()
    assert first is not None
    assert (second.lora.path, second.lora.id != first.lora.id) == ("/other", True)


async def test_an_invalid_operation_is_the_callers_error(coordinator: CoordinatorFleet, tmp_path: Path) -> None:
    """The workers' own error is raised, and nothing has changed."""
    with pytest.raises(NotFound, match="no directory"):
        await coordinator.admin.load_weights(None, str(tmp_path / "missing"), "v", reset_prefix_cache=False)
    with pytest.raises(InvalidRequest, match="mode must be one of"):
        await coordinator.admin.pause(None, "later", clear_cache=False)
    with pytest.raises(Unsupported, match="no method"):
        await coordinator.admin.collective_rpc(None, "profile", [], {}, None)
    with pytest.raises(NotFound, match="does not exist"):
        await coordinator.admin.resume("unknown")

    assert coordinator.desired.get("simulated") is None


class Sleepless(SimulatedEngine):
    """Announces that it can neither sleep nor take weights by a transfer."""

    def capabilities(self) -> pb.EngineCapabilities:
        """Announce it."""
        capabilities = super().capabilities()
        capabilities.unsupported_operations.extend(["sleep", "weight_transfer"])
        return capabilities


def sleepless() -> Sleepless:
    """Return such an engine."""
    return Sleepless(SimulationSettings(step_ms=1))


async def test_an_operation_that_workers_lack_changes_none(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers, tmp_path: Path
) -> None:
    """The error names one of them; parameters one by one need no transfer engine, level 0 only pauses."""
    await fleet.kill("two")
    await fleet.kill("three")
    addresses = [unix_address(tmp_path, name) for name in ("two", "three")]
    async with running_worker(addresses[0], sleepless()), running_worker(addresses[1], sleepless()):
        await coordinator.wait_ready(3)
        for operation in (
            coordinator.admin.sleep(None, 1, "abort"),
            coordinator.admin.transfer(None, "start", {}),
            coordinator.admin.transfer(None, "init", {"init_info": {"rank_offset": 1}}),
        ):
            with pytest.raises(Unsupported, match=f"{addresses[0]} .* does not support"):
                await operation
        assert not any(session.serving.epoch for session in coordinator.pool.sessions)

        await coordinator.admin.sleep(None, 0, "keep")
        with pytest.raises(InvalidRequest, match="needs a start"):  # of the workers themselves
            await coordinator.admin.transfer(None, "update", {"update_info": {"named_param": {"name": "a"}}})


async def test_a_worker_that_lacks_what_others_have_takes_no_part(
    coordinator: CoordinatorFleet, fleet: RestartableWorkers, tmp_path: Path
) -> None:
    """The operation succeeds at the others; then it gets no requests, and the reason is known."""
    await fleet.kill("three")
    async with running_worker(unix_address(tmp_path, "three"), sleepless()):
        await coordinator.wait_ready(3)
        results = await coordinator.admin.transfer(None, "init", {"init_info": {"rank_offset": 1}})
        assert [Path(result.address).stem for result in results] == ["one", "two"]
        for stage, arguments in (("start", {}), ("update", {"update_info": {}}), ("finish", {"weight_version": "v3"})):
            await coordinator.admin.transfer(None, stage, arguments)

        assert await coordinator.takers() == {"one", "two"}
        assert "it has the weights" in coordinator.pool.out_of_sync(coordinator.pool.sessions[2])


async def test_a_worker_that_is_refused_fails_no_operation(coordinator: CoordinatorFleet, tmp_path: Path) -> None:
    """It gets no requests either; one that cannot be reached does."""

    async def nameless(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        await context.write(pb.SessionResponse(welcome=pb.Welcome(protocol=pb.ProtocolVersion(major=1))))
        await asyncio.Event().wait()

    addresses = [unix_address(tmp_path, name) for name in (*NAMES, "refused")]
    async with scripted_worker(addresses[-1], nameless):
        coordinator.pool.update(addresses)
        await until(lambda: coordinator.pool.sessions[3].is_refused)
        results = await coordinator.admin.set_weight_version(None, "v1")
        assert [Path(result.address).stem for result in results] == list(NAMES)
    await until(lambda: not coordinator.pool.sessions[3].is_refused)
    with pytest.raises(FleetFailed, match="1 of 4"):
        await coordinator.admin.set_weight_version(None, "v2")


async def test_operations_without_workers_are_unavailable(tmp_path: Path) -> None:
    """Without a connected worker an operation is unavailable, not a success."""
    async with running_admin(tmp_path) as coordinator:
        with pytest.raises(Unavailable, match="No worker"):
            await coordinator.admin.resume(None)


async def test_an_unmanaged_worker_is_not_reconciled(coordinator: CoordinatorFleet) -> None:
    """It gets no requests while it differs from the others, until the next operation."""
    await coordinator.admin.set_weight_version(None, "v1")
    session = coordinator.pool.sessions[0]
    async with open_channel(session.address) as channel:
        stub = control_pb2_grpc.ControlStub(channel)
        await stub.PauseGeneration(control_pb2.PauseGenerationRequest(mode=control_pb2.PAUSE_MODE_KEEP))
    await until(lambda: session.serving.unmanaged)
    assert await coordinator.takers() == {"two", "three"}

    await coordinator.admin.resume(None)

    assert await coordinator.takers() == set(NAMES)


async def test_concurrent_operations_leave_all_workers_alike(coordinator: CoordinatorFleet, tmp_path: Path) -> None:
    """Concurrent operations of two coordinators may both report failures, but the workers converge."""
    async with running_admin(tmp_path) as other:
        await other.wait_ready(3)
        await asyncio.gather(
            coordinator.admin.load_lora(None, "red", "/red"),
            other.admin.pause(None, "keep", clear_cache=False),
            other.admin.load_lora(None, "blue", "/blue"),
            coordinator.admin.set_weight_version(None, "v9"),
            return_exceptions=True,
        )

        await coordinator.wait_alike(3)
        await other.wait_alike(3)

        assert coordinator.desired.get("simulated") == other.desired.get("simulated")
