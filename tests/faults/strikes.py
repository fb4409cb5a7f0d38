"""What fails of a cluster: workers, networks, the coordinator, certificates, clocks."""

import asyncio
import signal
import time

from tests.faults.client import ClientRecord
from tests.faults.cluster import FaultyCluster

AWAY_S = 30.0
POISON = "\a"
"""Nothing that the simulated engine generates: a reply that goes on has its tokens in its prompt."""


async def kill(cluster: FaultyCluster) -> None:
    """Kill -9 of a worker."""
    cluster.kill(0)


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
