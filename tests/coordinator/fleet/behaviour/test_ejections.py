"""Replies of a worker that is ejected go on at another one."""

import asyncio
from pathlib import Path

from tests.coordinator.fleet.behaviour.cluster import greedy_submit, some_tokens
from tests.coordinator.fleet.sessions import Requests
from tests.workers import (
    Listener,
    SessionContext,
    accept,
    running_worker,
    scripted_worker,
    unix_address,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.outliers import EjectionReason, OutlierDetector, OutlierSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.v1 import inference_pb2 as pb


async def heartbeats_only(requests: Requests, context: SessionContext) -> None:
    """Greet, and be alive: take every request, and send no token."""
    await anext(requests)
    greeting = welcome(names=("simulated",))
    greeting.welcome.heartbeat_ms = 500
    await context.write(greeting)
    while True:
        await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat()))
        await asyncio.sleep(0.1)


async def test_a_request_leaves_a_worker_that_only_sends_heartbeats(tmp_path: Path) -> None:
    """Another worker, which generates, gets it, and the silent one no more."""
    silent, good = unix_address(tmp_path, "silent"), unix_address(tmp_path, "good")
    outliers: OutlierDetector[WorkerSession] = OutlierDetector(OutlierSettings(factor=1.5, silence_timeout_s=1.0))
    pool = WorkerPool("test", accept, outliers=outliers)
    failover = Failover(AdmissionQueue(pool, AdmissionSettings()), FailoverSettings(), pool)
    pool.subscribe(failover)
    async with scripted_worker(silent, heartbeats_only), running_worker(good):
        pool.update([silent, good])
        await until(lambda: all(session.state is SessionState.READY for session in pool.sessions))
        listeners = [Listener() for _ in range(2)]
        for listener in listeners:
            failover.submit("simulated", greedy_submit(max_tokens=30_000), [listener])
        for listener in listeners:
            await some_tokens(listener)

        ejected, other = pool.sessions
        assert ejected.ejected
        assert (ejected.ejections[EjectionReason.SILENT], other.ejected) == (1, "")
        failover.stop()
        await pool.stop()
