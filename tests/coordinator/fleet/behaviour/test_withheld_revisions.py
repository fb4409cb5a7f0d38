"""A revision whose last worker is silent or fails gets no new requests while another one serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.coordinator.fleet.behaviour.cluster import greedy_submit, some_tokens
from tests.coordinator.fleet.behaviour.test_ejections import FailsEach, an_end, an_error, impatient
from tests.coordinator.fleet.sessions import Requests
from tests.workers import (
    Listener,
    Script,
    SessionContext,
    running_worker,
    scripted_worker,
    unix_address,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverStats
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.request_handle import NEW
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.errors import RevisionLost
from tokenwire.v1 import inference_pb2 as pb


class OfAnotherRevision:
    """Writes what a script writes, but announces other weights."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context

    async def write(self, event: pb.SessionResponse) -> None:
        """Pass an event on."""
        if event.HasField("welcome"):
            event.welcome.model.weights_digest = "other weights"
        await self._context.write(event)


async def never_answering(requests: Requests, context: SessionContext) -> None:
    """Take every request, and send no token."""
    await anext(requests)
    greeting = welcome(names=("simulated",))
    greeting.welcome.model.max_num_seqs = 8
    await context.write(greeting)
    async for _ in requests:
        pass


@asynccontextmanager
async def two_revisions(folder: Path, script: Script) -> AsyncIterator[tuple[WorkerPool, Failover, WorkerSession]]:
    """Run a worker that serves, and has, and a scripted one of another revision, whose session comes last."""

    async def other(requests: Requests, context: SessionContext) -> None:
        await script(requests, OfAnotherRevision(context))  # type: ignore[arg-type]

    good, bad = unix_address(folder, "good"), unix_address(folder, "bad")
    async with running_worker(good), scripted_worker(bad, other), impatient(good, bad) as (pool, failover):
        serving, session = pool.sessions
        await send_to(failover, serving).ended.wait()
        yield pool, failover, session


def send_to(failover: Failover, session: WorkerSession, max_tokens: int = 5) -> Listener:
    """Send a request to the revision of a session."""
    listener = Listener()
    placement = replace(NEW, revision=session.revision)
    failover.submit("simulated", greedy_submit(max_tokens=max_tokens), [listener], placement)
    return listener


async def test_a_silent_revision_is_withheld_and_what_waits_there_ends(tmp_path: Path) -> None:
    """With an error that names the revision; the worker keeps its session, and its status says why."""
    async with two_revisions(tmp_path, never_answering) as (pool, failover, session):
        await some_tokens(send_to(failover, pool.sessions[0], max_tokens=30_000))
        listeners = [send_to(failover, session) for _ in range(3)]
        for listener in listeners:
            await listener.ended.wait()
            assert isinstance(listener.error, RevisionLost)
            assert f"revision {session.revision}" in listener.error.message

        assert (session.ejected, pool.plausible_capacity("simulated", session.revision)) == ("", 0)
        assert pool.is_withheld("simulated", session.revision)
        assert not pool.is_withheld("simulated", pool.sessions[0].revision)
        reason = FleetStatus(pool, FleetAdmin.__new__(FleetAdmin)).of(session).reason
        assert reason.startswith("its revision gets no new requests for 30 s")
        metrics = FleetCollector(pool, AdmissionQueue(pool, AdmissionSettings()), FailoverStats())
        states = next(each for each in metrics.collect() if each.name == "tokenwire_worker_state")
        current = {each.labels["worker"]: each.labels["state"] for each in states.samples if each.value}
        assert current == {pool.sessions[0].address: "ready", session.address: "withheld"}
        assert "sent no token for" in reason


async def test_a_revision_that_fails_each_request_is_withheld(tmp_path: Path) -> None:
    """With the fifth, until it serves one."""
    script = FailsEach(an_error)
    async with two_revisions(tmp_path, script.session) as (pool, failover, session):
        for _ in range(5):
            assert not session.withheld
            await send_to(failover, session).ended.wait()
        await until(lambda: bool(session.withheld))
        assert "5 requests more than it served ended there with an error" in session.withheld

        script.failure = an_end
        await send_to(failover, session).ended.wait()
        assert not session.withheld
        assert not pool.is_withheld("simulated", session.revision)
        assert pool.plausible_capacity("simulated", session.revision) > 1


async def test_what_nobody_waits_for_is_not_served(tmp_path: Path) -> None:
    """An end of what its client gave up clears no revision, and an error of it blames none."""
    async with two_revisions(tmp_path, never_answering) as (_, failover, session):
        send_to(failover, session)
        await until(lambda: session.open_slots > 0)
        session.errors = 3
        session.abort([0])
        for reason in (pb.FINISH_REASON_STOP, pb.FINISH_REASON_ERROR):
            session._count_ends([pb.Finish(slot=slot, reason=reason) for slot in (0, 7)])
        assert (session.errors, session.has_served) == (3, False)


async def test_the_only_revision_is_never_withheld(tmp_path: Path) -> None:
    """It fails whatever it gets, but nobody else has it."""
    bad = unix_address(tmp_path, "bad")
    async with scripted_worker(bad, FailsEach(an_error).session), impatient(bad) as (pool, failover):
        (session,) = pool.sessions
        for _ in range(6):
            await send_to(failover, session).ended.wait()
        assert session.errors == 6
        pool._check_outliers()
        assert (session.withheld, session.ejected) == ("", "")
