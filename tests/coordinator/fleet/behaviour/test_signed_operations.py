"""Coordinators with a key, real workers, and one that announces what nobody ordered."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.coordinator.fleet.records import FOREIGN, KEYS, NOW, operation
from tests.workers import IDENTITY, SessionContext, accept, running_worker, scripted_worker, unix_address, until
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.liveness import LivenessSettings
from tokenwire.coordinator.fleet.operation_trust import OperationTrust
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.errors import Unavailable
from tokenwire.peer_auth.operation_keys import OperationKeys
from tokenwire.protocol.version import protocol_version
from tokenwire.v1 import inference_pb2 as pb

HONEST = ("one", "two")


async def lie(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
    """Announce a pause that another fleet's coordinator ordered, twice."""
    await anext(requests)
    record = FOREIGN.sign(operation(NOW, "simulated"))
    serving = pb.ServingState(epoch=NOW, revision=1, paused=True, records=[record])
    model = pb.Model(names=["simulated"], engine="hostile", max_num_seqs=4, **IDENTITY)
    welcome = pb.Welcome(protocol=protocol_version(), model=model, serving=serving, instance_id="hostile")
    welcome.heartbeat_ms = 500
    await context.write(pb.SessionResponse(welcome=welcome))
    serving.revision = 2
    await context.write(pb.SessionResponse(serving=serving))
    await asyncio.Event().wait()


class SigningFleet:
    """A coordinator with keys."""

    def __init__(self, folder: Path) -> None:
        self.keys = KEYS
        self.desired = DesiredStates(trust=OperationTrust(lambda: self.keys))
        self.pool = WorkerPool("test", accept, self.desired, liveness=LivenessSettings(0))
        self.admin = FleetAdmin(self.pool, self.desired, timeout_s=10)
        self._folder = folder

    async def connect(self, *names: str) -> None:
        """Connect to these workers."""
        self.pool.update([unix_address(self._folder, name) for name in names])
        await until(lambda: all(session.state is SessionState.READY for session in self.pool.sessions))

    def states(self) -> dict[str, str]:
        """Return what metrics say of each worker."""
        queue = AdmissionQueue(self.pool, AdmissionSettings())
        families = {family.name: family for family in FleetCollector(self.pool, queue, FailoverStats()).collect()}
        samples = families["tokenwire_worker_state"].samples
        return {Path(each.labels["worker"]).stem: each.labels["state"] for each in samples if each.value}

    def reason(self, name: str) -> str:
        """Return why a worker gets no requests."""
        (session,) = (each for each in self.pool.sessions if Path(each.address).stem == name)
        return self.pool.out_of_sync(session)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[SigningFleet]:
    """Two honest workers and a hostile one, which the coordinator does not know yet."""
    async with AsyncExitStack() as stack:
        for name in HONEST:
            await stack.enter_async_context(running_worker(unix_address(tmp_path, name)))
        await stack.enter_async_context(scripted_worker(unix_address(tmp_path, "hostile"), lie))
        fleet = SigningFleet(tmp_path)
        stack.push_async_callback(fleet.pool.stop)
        yield fleet


async def test_a_worker_that_is_set_aside_takes_part_in_nothing(
    fleet: SigningFleet, caplog: pytest.LogCaptureFixture
) -> None:
    """Operations of the others succeed; its reason is in the status, a metric, and one line of the log."""
    with caplog.at_level(logging.WARNING):
        await fleet.connect(*HONEST, "hostile")
        results = await fleet.admin.set_weight_version(None, "v1")

    assert [Path(result.address).stem for result in results] == list(HONEST)
    assert fleet.states() == {"one": "ready", "two": "ready", "hostile": "set_aside"}
    assert "no key of ours signed" in fleet.reason("hostile")
    assert sum("is set aside" in record.message for record in caplog.records) == 1


async def test_operations_need_a_worker_that_is_not_set_aside(fleet: SigningFleet) -> None:
    """Otherwise the error has the reason."""
    await fleet.connect("hostile")

    with pytest.raises(Unavailable, match="no key of ours signed"):
        await fleet.admin.resume(None)


async def test_a_coordinator_that_has_just_started_follows_what_workers_repeat(
    fleet: SigningFleet, tmp_path: Path
) -> None:
    """With the same key, also one that orders nothing itself."""
    await fleet.connect(*HONEST)
    await fleet.admin.pause(None, "keep", clear_cache=False)
    await fleet.admin.load_lora(None, "red", "/red")

    later = SigningFleet(tmp_path)
    await later.connect(*HONEST)

    assert later.desired.get("simulated") == fleet.desired.get("simulated")
    assert later.desired.adapter("red") is not None
    await later.pool.stop()


@pytest.mark.slow
async def test_workers_are_judged_again_when_keys_change(fleet: SigningFleet) -> None:
    """Within some seconds, although no worker announces anything."""
    await fleet.connect(*HONEST)
    await fleet.admin.set_weight_version(None, "v1")

    fleet.keys = OperationKeys("another" * 8)

    await until(lambda: set(fleet.states().values()) == {"set_aside"})
    fleet.keys = KEYS
    await until(lambda: set(fleet.states().values()) == {"ready"})
