"""Replies of a worker that is ejected go on at another one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.coordinator.fleet.behaviour.cluster import greedy_submit, some_tokens
from tests.coordinator.fleet.sessions import Requests
from tests.workers import (
    Listener,
    Script,
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
from tokenwire.errors import InvalidRequest, Unavailable
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


async def old_and_silent(requests: Requests, context: SessionContext) -> None:
    """Greet as a worker of a version without heartbeats, and send nothing."""
    await anext(requests)
    await context.write(welcome(names=("simulated",)))
    await asyncio.Event().wait()


async def pauses_by_itself(requests: Requests, context: SessionContext) -> None:
    """Take a request, then say that the worker is paused, which nobody ordered."""
    await anext(requests)
    greeting = welcome(names=("simulated",))
    greeting.welcome.heartbeat_ms = 500
    await context.write(greeting)
    await anext(requests)
    paused = pb.ServingState(revision=greeting.welcome.serving.revision + 1, paused=True)
    await context.write(pb.SessionResponse(serving=paused))
    while True:
        await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat()))
        await asyncio.sleep(0.1)


@asynccontextmanager
async def impatient(*addresses: str, attempts: int = 3) -> AsyncIterator[tuple[WorkerPool, Failover]]:
    """Run a pool of workers, once all are ready, that finds a second of silence long, and failover on top of it."""
    outliers: OutlierDetector[WorkerSession] = OutlierDetector(OutlierSettings(factor=1.5, silence_timeout_s=1.0))
    pool = WorkerPool("test", accept, outliers=outliers)
    failover = Failover(AdmissionQueue(pool, AdmissionSettings()), FailoverSettings(attempts), pool)
    pool.subscribe(failover)
    pool.update(addresses)
    try:
        await until(lambda: all(session.state is SessionState.READY for session in pool.sessions))
        yield pool, failover
    finally:
        failover.stop()
        await pool.stop()


async def test_a_request_leaves_a_worker_that_only_sends_heartbeats(tmp_path: Path) -> None:
    """Another worker, which generates, gets it, and the silent one no more."""
    silent, good = unix_address(tmp_path, "silent"), unix_address(tmp_path, "good")
    async with scripted_worker(silent, heartbeats_only), running_worker(good), impatient(silent, good) as layers:
        pool, failover = layers
        listeners = [Listener() for _ in range(2)]
        for listener in listeners:
            failover.submit("simulated", greedy_submit(max_tokens=30_000), [listener])
        for listener in listeners:
            await some_tokens(listener)

        ejected, other = pool.sessions
        assert ejected.ejected
        assert (ejected.ejections[EjectionReason.SILENT], other.ejected) == (1, "")


@pytest.mark.parametrize("script", [heartbeats_only, pauses_by_itself, old_and_silent])
async def test_a_request_leaves_a_worker_without_steps_though_nobody_else_generates(
    script: Script, tmp_path: Path
) -> None:
    """Another one that has nothing to do could; also if the worker says that it is paused, or has no heartbeats."""
    silent, good = unix_address(tmp_path, "silent"), unix_address(tmp_path, "good")
    async with scripted_worker(silent, script), impatient(silent) as (pool, failover), running_worker(good):
        listener = Listener()
        failover.submit("simulated", greedy_submit(), [listener])
        pool.update([silent, good])
        await listener.ended.wait()

        assert (listener.error, len(listener.token_ids)) == (None, 120)


class ServesOne:
    """Serves the first of its requests, a token in each step, and starves all others."""

    def __init__(self) -> None:
        self.aborted: list[int] = []

    async def session(self, requests: Requests, context: SessionContext) -> None:
        """Greet, and take whatever comes."""
        await anext(requests)
        greeting = welcome(names=("simulated",))
        greeting.welcome.heartbeat_ms, greeting.welcome.model.max_num_seqs = 500, 8
        await context.write(greeting)
        serving: asyncio.Task[None] | None = None
        try:
            async for request in requests:
                self.aborted += request.abort.slots
                if request.HasField("submit") and serving is None:
                    serving = asyncio.create_task(self._serve(request.submit.slots[0], context))
        finally:
            if serving is not None:
                serving.cancel()

    async def _serve(self, slot: int, context: SessionContext) -> None:
        prefills = [pb.PrefillInfo(slot=slot)]
        while True:
            await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[65], prefills=prefills)))
            prefills = []
            await asyncio.sleep(0.05)


async def test_requests_leave_a_worker_that_serves_some_and_starves_others(tmp_path: Path) -> None:
    """Each after its time; the worker is ejected for it, and the requests are not taken for poison."""
    starving, good = unix_address(tmp_path, "starving"), unix_address(tmp_path, "good")
    script = ServesOne()
    async with scripted_worker(starving, script.session), impatient(starving) as (pool, failover):
        listeners = [Listener() for _ in range(4)]
        for listener in listeners:
            failover.submit("simulated", greedy_submit(max_tokens=30_000), [listener])
        async with running_worker(good):
            pool.update([starving, good])
            for listener in listeners:
                await some_tokens(listener)

            ejected = pool.sessions[0]
            await until(lambda: bool(ejected.ejected))
            assert ejected.ejections[EjectionReason.STARVING] == 1
            assert (failover.stats.poison, failover.stats.failed) == (0, 0)
            await until(lambda: len(script.aborted) == 4)  # the one that it served moves when it is ejected


def a_refusal(slot: int) -> pb.SessionResponse:
    """Return a refusal that blames the request."""
    return pb.SessionResponse(refusal=pb.Refusal(slots=[slot], code=pb.REFUSAL_CODE_INVALID, message="no"))


def an_error(slot: int) -> pb.SessionResponse:
    """Return the end of a sequence that the engine failed."""
    finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_ERROR)
    return pb.SessionResponse(frame=pb.StepFrame(finishes=[finish]))


class FailsEach:
    """Answers each request with a failure, at once."""

    def __init__(self, failure: Callable[[int], pb.SessionResponse]) -> None:
        self.requests = 0
        self.failure = failure

    async def session(self, requests: Requests, context: SessionContext) -> None:
        """Greet, and fail whatever comes."""
        await anext(requests)
        greeting = welcome(names=("simulated",))
        greeting.welcome.heartbeat_ms, greeting.welcome.model.max_num_seqs = 500, 8
        greeting.welcome.instance_id = f"{id(self)}"
        await context.write(greeting)
        async for request in requests:
            if request.HasField("submit"):
                self.requests += 1
                await context.write(self.failure(request.submit.slots[0]))


@pytest.mark.parametrize("failure", [a_refusal, an_error])
async def test_requests_leave_a_worker_that_fails_each(
    failure: Callable[[int], pb.SessionResponse], tmp_path: Path
) -> None:
    """Every one is served by the other one, and the worker is ejected, though it has the least to do."""
    failing, good = unix_address(tmp_path, "failing"), unix_address(tmp_path, "good")
    script = FailsEach(failure)
    async with (
        scripted_worker(failing, script.session),
        running_worker(good),
        impatient(failing, good) as (pool, failover),
    ):
        ejected, other = pool.sessions
        while not ejected.ejected:
            listener = Listener()
            failover.submit("simulated", greedy_submit(max_tokens=5), [listener])
            await listener.ended.wait()
            assert (listener.error, len(listener.token_ids)) == (None, 5)

        assert script.requests >= 5
        assert (ejected.ejections[EjectionReason.FAILING], other.ejected) == (1, "")


async def test_what_two_workers_refuse_ejects_none(tmp_path: Path) -> None:
    """The request is to blame, and its client learns why."""
    addresses = [unix_address(tmp_path, name) for name in ("one", "other")]
    scripts = [FailsEach(a_refusal) for _ in addresses]
    async with (
        scripted_worker(addresses[0], scripts[0].session),
        scripted_worker(addresses[1], scripts[1].session),
        impatient(*addresses) as (pool, failover),
    ):
        for _ in range(6):
            listener = Listener()
            failover.submit("simulated", greedy_submit(max_tokens=5), [listener])
            await listener.ended.wait()
            assert isinstance(listener.error, InvalidRequest)

        assert [script.requests for script in scripts] == [6, 6]
        assert [(session.failed, session.ejected) for session in pool.sessions] == [(0, "")] * 2


def an_end(slot: int) -> pb.SessionResponse:
    """Return the end of a sequence after a token, whatever was asked for."""
    finish = pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP)
    return pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[65], finishes=[finish]))


async def test_a_worker_that_serves_what_others_rightly_refuse_ejects_none(tmp_path: Path) -> None:
    """With a client that sends such requests, it would get all others'."""
    answers = [a_refusal, a_refusal, an_end]
    addresses = [unix_address(tmp_path, f"worker-{number}") for number in range(3)]
    async with AsyncExitStack() as stack:
        for address, answer in zip(addresses, answers, strict=True):
            await stack.enter_async_context(scripted_worker(address, FailsEach(answer).session))
        pool, failover = await stack.enter_async_context(impatient(*addresses))
        while max(session.failed for session in pool.sessions) < 8:
            listener = Listener()
            failover.submit("simulated", greedy_submit(max_tokens=5), [listener])
            await listener.ended.wait()
            assert listener.token_ids == [65]

        detector: OutlierDetector[WorkerSession] = OutlierDetector(OutlierSettings())
        assert detector.check(pool.sessions, pool.is_covered) == []
        assert [session.ejected for session in pool.sessions] == [""] * 3


async def test_without_failover_a_starved_request_ends_with_an_error(tmp_path: Path) -> None:
    """Its client learns for how long nothing came."""
    starving = unix_address(tmp_path, "starving")
    async with scripted_worker(starving, ServesOne().session), impatient(starving, attempts=0) as (_, failover):
        served, starved = Listener(), Listener()
        for listener in (served, starved):
            failover.submit("simulated", greedy_submit(max_tokens=30_000), [listener])
        await starved.ended.wait()

        assert isinstance(starved.error, Unavailable)
        assert "sent no token of this reply" in starved.error.message
        assert not served.ended.is_set()
