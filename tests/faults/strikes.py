"""What fails of a cluster: workers, networks, the coordinator, certificates, clocks."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from tests.adversary.hostile_worker import server_info
from tests.faults.client import ClientRecord
from tests.faults.cluster import FaultyCluster
from tests.processes import worker_metrics

AWAY_S = 30.0
_AT_WORK = 40
"""Requests that a worker is killed under which has just begun with them."""
POISON = "\a"
"""Nothing that the simulated engine generates: a reply that goes on has its tokens in its prompt."""


async def kill(cluster: FaultyCluster) -> None:
    """Kill -9 of a worker."""
    cluster.kill(0)


async def kill_processing(cluster: FaultyCluster) -> None:
    """Kill -9 of a worker that processes pictures."""

    async def processes() -> bool:
        metrics = await asyncio.to_thread(worker_metrics, cluster.address(0), "tokenwire_worker_media")
        return metrics["tokenwire_worker_media_waiting"] > 0

    await _kill_at_work(cluster, processes)


async def kill_prefilling(cluster: FaultyCluster) -> None:
    """Kill -9 of a worker that has begun with requests, none of which has a token."""
    address = cluster.address(0)

    async def has_begun() -> bool:
        slots = (await server_info(address)).open_slots
        tokens = await asyncio.to_thread(worker_metrics, address, "vllm:generation_tokens_total")
        if any(tokens.values()):
            raise AssertionError("tokens came before the worker was killed")
        return slots > 0

    await _kill_at_work(cluster, has_begun)


async def kill_pooling(cluster: FaultyCluster) -> None:
    """Kill -9 of a worker that has computed some inputs of batches, and not the others."""
    most = 0

    async def has_computed_some() -> bool:
        nonlocal most
        slots = (await server_info(cluster.address(0))).open_slots
        most = max(most, slots)
        return 0 < slots < most

    await _kill_at_work(cluster, has_computed_some)


async def _kill_at_work(cluster: FaultyCluster, works: Callable[[], Awaitable[bool]]) -> None:
    """Kill the first worker once it works on requests, and wait for their ends."""
    tasks = cluster.begin_more(_AT_WORK)
    while not await works():
        if all(task.done() for task in tasks):
            raise AssertionError(f"nothing was to be done: {[task.result().problem for task in tasks][:3]}")
    cluster.kill(0)
    await asyncio.gather(*tasks)


async def freeze(cluster: FaultyCluster) -> None:
    """SIGSTOP of a worker."""
    cluster.kill(0, signal.SIGSTOP)


async def terminate(cluster: FaultyCluster) -> None:
    """SIGTERM of a worker."""
    cluster.kill(0, signal.SIGTERM)


async def wait(cluster: FaultyCluster) -> None:
    """Wait until the worker fails by itself."""


async def swallow(cluster: FaultyCluster) -> None:
    """Turn a worker's network into a black hole."""
    cluster.proxies[0].swallow()


async def halve(cluster: FaultyCluster) -> None:
    """Leave half-open connections."""
    cluster.proxies[0].halve()


async def delay(cluster: FaultyCluster) -> None:
    """Delay all data, some of it much."""
    for proxy in cluster.proxies:
        proxy.delay(0.1)


async def roll(cluster: FaultyCluster) -> None:
    """Restart all workers, one after the other."""
    for number in list(cluster.workers):
        await _replace(cluster, number)


async def _replace(cluster: FaultyCluster, number: int) -> None:
    cluster.kill(number, signal.SIGTERM)
    await asyncio.to_thread(cluster.workers[number].wait_exit)
    cluster.start_worker(number)
    await cluster.wait_worker(number)
    await asyncio.sleep(1)  # as an orchestrator does, until coordinators have it


async def leave_nobody(cluster: FaultyCluster) -> None:
    """Kill the only worker; another one starts half a minute later."""
    cluster.kill(0)
    await asyncio.sleep(AWAY_S)
    cluster.start_worker(0)


async def stop_coordinator(cluster: FaultyCluster) -> None:
    """SIGTERM of the coordinator; another one serves from then on."""
    cluster.coordinator.signal(signal.SIGTERM)
    await cluster.start_coordinator()


async def poison(cluster: FaultyCluster) -> None:
    """Send a request that kills every worker that starts it."""
    (task,) = cluster.begin([ClientRecord({**cluster.body(0), "prompt": POISON})])
    stream = await task
    if "Two workers died" not in stream.problem:
        raise AssertionError(f"the request was not stopped: {stream.problem}")


async def flap(cluster: FaultyCluster) -> None:
    """Make discovery lose and find workers."""
    for present in ((0, 1), (1, 2), (0,), (0, 2), (2,), (0, 1, 2)):
        cluster.announce(present)
        await asyncio.sleep(0.7)


async def exchange(cluster: FaultyCluster) -> None:
    """Rotate the certificates of both sides and their authority, a worker at a time, until all connections are new."""
    for number in list(cluster.workers):
        cluster.certify()
        await _replace(cluster, number)


async def jump(cluster: FaultyCluster) -> None:
    """Set all processes' clocks a day ahead, a day back, and right again."""
    assert cluster.clock is not None
    for offset, hours in (("+1d", 24), ("-1d", -24), ("+0", 0)):
        cluster.clock.set(offset)
        await asyncio.sleep(1.5)
        stream = await cluster.begin([ClientRecord({**cluster.body(0), "max_tokens": 5})])[0]
        if stream.problem or abs(stream.created - time.time() - hours * 3600) > 60:
            raise AssertionError(f"the clock did not follow, or the stream broke: {stream.problem or stream.created}")
