"""When a worker is lost, by its heartbeats or its engine's stalls."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
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
    welcome,
)
from tokenwire.coordinator.fleet.liveness import LivenessMonitor, LivenessSettings, LossReason
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.errors import InvalidRequest, Unavailable, WorkerLost
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.simulated_engine.faults import FaultPlan


def test_a_silent_worker_is_overdue() -> None:
    """Checked regularly, it is overdue once nothing was received for the whole timeout."""
    time = Clock()
    liveness = LivenessMonitor(LivenessSettings(heartbeat_timeout_s=4), time)
    liveness.start()
    checks = []
    for _ in range(20):
        time.now += 0.25
        checks.append(liveness.is_overdue())
    assert checks == [False] * 16 + [True] * 4


def test_time_in_which_this_process_did_not_run_does_not_count() -> None:
    """After ten seconds without a check, the worker still has the rest of its timeout."""
    time = Clock()
    liveness = LivenessMonitor(LivenessSettings(heartbeat_timeout_s=4), time)
    liveness.start()
    time.now += 0.25
    assert not liveness.is_overdue()
    time.now += 10
    assert not liveness.is_overdue()
    for _ in range(14):
        time.now += 0.25
        assert not liveness.is_overdue()
    time.now += 0.5
    assert liveness.is_overdue()


def test_a_worker_that_dies_while_this_process_does_not_run_is_lost_after_one_timeout() -> None:
    """Its last events are read before the first check: what they say is not extended by the time before."""
    time = Clock()
    liveness = LivenessMonitor(LivenessSettings(heartbeat_timeout_s=4), time)
    liveness.start()
    time.now += 10
    liveness.last_event_at = time.now
    checks = [liveness.is_overdue()]
    for _ in range(17):
        time.now += 0.25
        checks.append(liveness.is_overdue())
    assert checks == [False] * 17 + [True]


async def test_a_session_may_end_at_the_moment_of_its_heartbeat_timeout() -> None:
    """Nothing is called for the timeout of a session that has ended."""
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["message"]))
    ended, times = asyncio.Event(), iter((0.0, 0.2))

    def clock() -> float:
        if (now := next(times)) > 0.1:
            ended.set()  # the connection is lost in this very turn of the loop
        return now

    liveness = LivenessMonitor(LivenessSettings(heartbeat_timeout_s=0.1), clock)
    async with liveness.heartbeat_timeout(500):
        await ended.wait()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert errors == []


def test_an_engine_is_stalled_after_timeout_and_allowance() -> None:
    """0 disables the timeout. The CPU time distinguishes slow engines from hanging ones."""
    beat = pb.Heartbeat(stalled_ms=5000, allowance_ms=500, engine_cpu_ms=4900)
    liveness = LivenessMonitor(LivenessSettings(engine_stall_timeout_s=4))
    with pytest.raises(Unavailable, match=r"no step for 5\.0 s and used 4\.9 s of CPU time"):
        liveness.check_heartbeat(beat, lambda: True)
    assert liveness.loss_reason is LossReason.STALLED
    for timeout_s in (4.6, 0):
        liveness = LivenessMonitor(LivenessSettings(engine_stall_timeout_s=timeout_s))
        liveness.check_heartbeat(beat, lambda: True)
        assert (liveness.stalled, liveness.loss_reason) == (False, LossReason.CLOSED)


def test_a_stalled_engine_without_a_replacement_gets_more_time() -> None:
    """Its requests could not be moved: it gets another minute, or until another worker is there."""
    liveness = LivenessMonitor(LivenessSettings(engine_stall_timeout_s=4))
    liveness.check_heartbeat(pb.Heartbeat(stalled_ms=63_000), lambda: False)
    assert liveness.stalled
    liveness.check_heartbeat(pb.Heartbeat(stalled_ms=0), lambda: False)
    assert not liveness.stalled
    liveness.check_heartbeat(pb.Heartbeat(stalled_ms=5000), lambda: False)
    with pytest.raises(Unavailable):
        liveness.check_heartbeat(pb.Heartbeat(stalled_ms=5500), lambda: True)
    with pytest.raises(Unavailable):
        liveness.check_heartbeat(pb.Heartbeat(stalled_ms=65_000), lambda: False)


@pytest.mark.parametrize("name", ["heartbeat_timeout", "engine_stall_timeout"])
def test_timeouts_are_not_negative(name: str) -> None:
    """The message names the option."""
    with pytest.raises(InvalidRequest, match=f"--{name.replace('_', '-')}"):
        LivenessSettings(**{f"{name}_s": -1.0})


async def test_a_worker_without_heartbeats_is_lost(tmp_path: Path) -> None:
    """One that announced heartbeats and sends none loses its session, although the connection exists."""
    address = unix_address(tmp_path)

    async def fall_silent(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        event = welcome()
        event.welcome.heartbeat_ms = 100
        await context.write(event)
        await asyncio.Event().wait()

    async with scripted_worker(address, fall_silent):
        pool = WorkerPool("test", accept, liveness=LivenessSettings(heartbeat_timeout_s=0.5))
        pool.update([address])
        await pool.wait_ready()
        listener = Listener()
        send(pool, submission(), [listener], "scripted")

        await listener.ended.wait()

        assert isinstance(listener.error, WorkerLost)
        assert "no heartbeat for 0.5 s" in listener.error.message
        await until(lambda: pool.sessions[0].losses[LossReason.HEARTBEAT_TIMEOUT] == 1)
        await pool.stop()


async def test_a_hanging_engine_is_lost_and_backed_off_from(tmp_path: Path) -> None:
    """Its heartbeats report a stall and another worker could take over: it gets no requests for a while."""
    address, other = f"{unix_address(tmp_path)}1", f"{unix_address(tmp_path)}2"
    async with running_worker(address, faults=FaultPlan.parse(["hang@step=60"])), running_worker(other):
        pool = WorkerPool("test", accept, liveness=LivenessSettings(engine_stall_timeout_s=0.3))
        pool.update([address])
        await pool.wait_ready()
        listener = Listener()
        send(pool, submission(200), [listener])
        pool.update([address, other])

        await listener.ended.wait()

        assert isinstance(listener.error, WorkerLost)
        assert "has made no step" in listener.error.message
        session, _ = pool.sessions
        assert session.state is SessionState.CONNECTING
        assert session.breaker.half_open
        await until(lambda: session.losses[LossReason.STALLED] == 1)
        assert sum(session.losses.values()) == 1
        await pool.stop()


async def test_a_stalled_engine_without_a_replacement_keeps_its_requests(tmp_path: Path) -> None:
    """It gets no new ones during the stall; then it continues its own, and nothing was lost."""
    address = unix_address(tmp_path)

    async def stall_for_a_while(requests: AsyncIterator[pb.SessionRequest], context: SessionContext) -> None:
        await anext(requests)
        event = welcome()
        event.welcome.heartbeat_ms = 100
        await context.write(event)
        (slot,) = (await anext(requests)).submit.slots
        await context.write(pb.SessionResponse(heartbeat=pb.Heartbeat(stalled_ms=5000)))
        await go_on.wait()
        await context.write(pb.SessionResponse(frame=pb.StepFrame(slots=[slot], token_ids=[7])))
        await asyncio.Event().wait()

    go_on = asyncio.Event()
    async with scripted_worker(address, stall_for_a_while):
        pool = WorkerPool("test", accept, liveness=LivenessSettings(engine_stall_timeout_s=1))
        pool.update([address])
        await pool.wait_ready()
        (session,) = pool.sessions
        listener = Listener()
        send(pool, submission(), [listener], "scripted")

        await until(lambda: session.state is SessionState.STALLED)
        assert not pool.is_ready()
        go_on.set()
        await pool.wait_ready()

        await until(lambda: listener.token_ids == [7])
        assert (listener.error, sum(session.losses.values())) == (None, 0)
        await pool.stop()


async def test_a_paused_engine_is_not_stalled(tmp_path: Path) -> None:
    """It makes no steps while it is paused; heartbeats continue."""
    address = unix_address(tmp_path)
    async with running_worker(address):
        pool = WorkerPool(
            "test", accept, liveness=LivenessSettings(heartbeat_timeout_s=1.5, engine_stall_timeout_s=0.1)
        )
        pool.update([address])
        await pool.wait_ready()
        control = pool.sessions[0].control
        assert control is not None
        listener = Listener()
        send(pool, submission(500), [listener])
        await until(lambda: len(listener.token_ids) > 100)
        await control.PauseGeneration(control_pb2.PauseGenerationRequest(mode=control_pb2.PAUSE_MODE_KEEP))

        await asyncio.sleep(1.6)  # the absence of a loss takes time to show

        await control.ResumeGeneration(control_pb2.ResumeGenerationRequest())
        await listener.ended.wait()
        assert listener.error is None
        await pool.stop()
