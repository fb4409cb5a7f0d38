"""Aborts through one coordinator hold for the requests of another one that loses its worker before it gets the end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.coordinator.fleet.behaviour.cluster import greedy_submit, some_tokens
from tests.faults.proxy import Proxy
from tests.workers import Listener, accept, running_worker, unix_address, until
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer


class Coordinators:
    """Two workers, one coordinator that reaches them through proxies, and another one that reaches them directly."""

    def __init__(self) -> None:
        self.workers: list[WorkerServer] = []
        self.proxies: list[Proxy] = []
        desired = DesiredStates()
        self.pools = [WorkerPool("one", accept), WorkerPool("other", accept, desired)]
        self.failover = Failover(AdmissionQueue(self.pools[0], AdmissionSettings()), FailoverSettings(), self.pools[0])
        self.aborts = FleetAborts(lambda: self.pools[1].sessions)
        self.admin = FleetAdmin(self.pools[1], desired, timeout_s=10)

    async def start(self, folder: Path, stack: AsyncExitStack) -> None:
        """Start everything."""
        addresses = [unix_address(folder, name) for name in "ab"]
        for address in addresses:
            self.workers.append(await stack.enter_async_context(running_worker(address, step_ms=4)))
            self.proxies.append(await stack.enter_async_context(Proxy(address)))
        for pool, reached in zip(self.pools, ([proxy.address for proxy in self.proxies], addresses), strict=True):
            pool.update(reached)
            stack.push_async_callback(pool.stop)
        stack.callback(self.failover.stop)
        await until(lambda: all(pool.free_capacity("simulated") > 300 for pool in self.pools))

    def holder(self) -> int | None:
        """Return which worker has a request, None if none has."""
        return next((i for i, worker in enumerate(self.workers) if worker.server_info().open_slots), None)


@pytest.fixture
async def coordinators(tmp_path: Path) -> AsyncIterator[Coordinators]:
    """Two coordinators of two workers."""
    async with AsyncExitStack() as stack:
        coordinators = Coordinators()
        await coordinators.start(tmp_path, stack)
        yield coordinators


ABORTS: dict[str, Callable[[Coordinators], Awaitable[object]]] = {
    "by id": lambda both: both.aborts.by_id(["request"]),
    "all": lambda both: both.aborts.everything(),
    "pause": lambda both: both.admin.pause(None, "abort", clear_cache=False),
    "sleep": lambda both: both.admin.sleep(None, 0, "abort"),
}


@pytest.mark.parametrize("abort", ABORTS.values(), ids=ABORTS)
async def test_an_abort_holds_when_its_event_is_lost(
    coordinators: Coordinators, abort: Callable[[Coordinators], Awaitable[object]]
) -> None:
    """The worker ended the sequence, and the connection to its own coordinator was lost with the event of that."""
    listener = Listener()
    coordinators.failover.submit("simulated", greedy_submit(max_tokens=20_000), [listener])
    await some_tokens(listener)
    number = coordinators.holder()
    assert number is not None
    coordinators.proxies[number].swallow()

    await abort(coordinators)
    await until(lambda: coordinators.holder() is None)
    assert not listener.ended.is_set()
    coordinators.proxies[number].cut()
    await until(listener.ended.is_set)

    assert listener.finish is not None
    assert listener.finish.reason == pb.FINISH_REASON_ABORT
    assert coordinators.holder() is None
