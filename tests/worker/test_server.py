"""The worker process around an engine: startup, serving, draining, stopping, and its engine's death."""

import asyncio
import contextlib
import logging
from pathlib import Path

import grpc
import pytest

from tests.worker.peers import TIMEOUT_S, ScriptedEngine, connected_peer, in_session
from tests.workers import running_worker, submit_message, until
from tokenwire.errors import EngineFailed
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.settings import WorkerSettings
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.faults import FaultPlan
from tokenwire.worker.simulated_engine.settings import SimulationSettings

LONG = 20_000
SERVICES = ("", "liveness", "readiness", "tokenwire.v1.Inference", "tokenwire.v1.Control")


# Startup.


async def test_a_free_port_is_chosen() -> None:
    """Port 0 takes any port, which is in the server's address."""
    async with running_worker("127.0.0.1:0") as worker:
        host, _, port = worker.address.rpartition(":")

        assert (host, port != "0") == ("127.0.0.1", True)
        async with in_session(worker.address):
            assert worker.server_info().sessions == 1


async def test_a_taken_port_is_reported() -> None:
    """Two workers cannot share a port; the error names the address, and stopping afterwards is clean."""
    async with running_worker("127.0.0.1:0") as first:
        second = WorkerServer(SimulatedEngine(SimulationSettings()), WorkerSettings(first.address))

        with pytest.raises(OSError, match=f"cannot listen on {first.address}"):
            await second.startup()

        await second.stop()


async def test_an_engine_that_does_not_start_opens_no_port(address: str) -> None:
    """Startup raises the engine's error, the port stays closed, and stopping is clean."""
    engine = SimulatedEngine(SimulationSettings(kv_tokens=64))
    server = WorkerServer(engine, WorkerSettings(address))

    with pytest.raises(EngineFailed, match="raise kv_tokens"):
        await server.startup()

    assert not Path(address.removeprefix("unix:")).exists()
    await server.stop()


@pytest.mark.parametrize(("listen", "warned"), [("127.0.0.1:0", False), ("0.0.0.0:0", True)])
async def test_an_open_port_is_logged(listen: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is reachable from other machines without authentication logs a warning."""
    async with running_worker(listen):
        warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]

    assert any("accepts all connections" in message for message in warnings) == warned


# Serving.


async def test_a_started_worker_is_healthy(address: str) -> None:
    """Every service is SERVING, and all counters are zero."""
    async with running_worker(address) as worker, connected_peer(address) as peer:
        assert [await peer.health(service) for service in SERVICES] == ["SERVING"] * len(SERVICES)
        info = worker.server_info()
        assert (info.open_slots, info.steps, info.generated_tokens) == (0, 0, 0)


async def test_a_step_is_dispatched_to_its_sessions(address: str) -> None:
    """Tokens of one step go to the session that owns the slot, even if two sessions use the same slot number."""
    async with running_worker(address) as worker, in_session(address) as one, in_session(address) as two:
        await one.send(submit=submit_message(20, slots=[1, 2]))
        await two.send(submit=submit_message(30, slots=[1]))
        await one.read_until_ended(1, 2)
        await two.read_until_ended(1)

        assert {slot: len(tokens) for slot, tokens in one.tokens.items()} == {1: 20, 2: 20}
        assert {slot: len(tokens) for slot, tokens in two.tokens.items()} == {1: 30}
        info = worker.server_info()
        assert (info.sessions, info.open_slots, info.generated_tokens) == (2, 0, 70)


async def test_serving_ends_with_a_drain(address: str) -> None:
    """On shutdown, `serve` returns after the last open slot has ended."""
    shutdown = asyncio.Event()
    async with running_worker(address) as worker, in_session(address) as peer:
        serving = asyncio.create_task(worker.serve(shutdown))
        await peer.send(submit=submit_message(50, slots=[0]))
        await peer.read()

        shutdown.set()
        await until(lambda: worker.welcome().draining)
        assert not serving.done()
        await peer.read_until_ended(0)
        await asyncio.wait_for(serving, TIMEOUT_S)

        assert len(peer.tokens[0]) == 50
        assert peer.finishes[0].reason == pb.FINISH_REASON_LENGTH


# Draining.


async def test_a_draining_worker_finishes_and_refuses_new_requests(address: str) -> None:
    """Sessions are notified, running sequences finish, and new ones are refused with a code of their own."""
    async with running_worker(address, step_ms=5) as worker, in_session(address) as peer:
        await peer.send(submit=submit_message(30, slots=[0]))
        await peer.read()
        draining = asyncio.create_task(worker.drain(20))
        await until(lambda: worker.welcome().draining)
        await peer.send(submit=submit_message(30, slots=[1, 2]))
        await peer.read_until_ended(0, 1, 2)
        await asyncio.wait_for(draining, TIMEOUT_S)

        assert [event.deadline_ms for event in peer.draining] == [20_000]
        assert len(peer.tokens[0]) == 30
        (refusal,) = peer.refusals
        assert (list(refusal.slots), refusal.code) == ([1, 2], pb.REFUSAL_CODE_DRAINING)
        assert set(peer.endings.values()) == {1}


async def test_a_draining_worker_is_alive_but_not_ready(address: str) -> None:
    """Only its liveness stays SERVING, so it is neither routed to nor restarted. New sessions are notified too."""
    async with running_worker(address) as worker, connected_peer(address) as peer:
        await worker.drain(0)

        health = {service: await peer.health(service) for service in SERVICES}
        assert health == {service: "SERVING" if service == "liveness" else "NOT_SERVING" for service in SERVICES}
        assert (await peer.hello()).draining


async def test_a_drain_aborts_at_its_deadline(address: str) -> None:
    """Sequences that outlast the deadline end with ABORT; then the drain is over."""
    async with running_worker(address) as worker, in_session(address) as peer:
        await peer.send(submit=submit_message(LONG, slots=[0, 1]))
        await peer.read()

        await asyncio.wait_for(worker.drain(0.1), TIMEOUT_S)

        assert worker.server_info().open_slots == 0
        await peer.read_until_ended(0, 1)
        assert {finish.reason for finish in peer.finishes.values()} == {pb.FINISH_REASON_ABORT}
        assert worker.server_info().generated_tokens < LONG


async def test_a_drain_ends_when_the_last_coordinator_disconnects(address: str) -> None:
    """Slots that close without a step, because their session is gone, do not delay a drain."""
    async with running_worker(address, ScriptedEngine()) as worker:
        async with in_session(address) as peer:
            await peer.send(submit=submit_message(slots=[0]))
            await until(lambda: worker.server_info().open_slots == 1)
            draining = asyncio.create_task(worker.drain(60))
            await peer.read()
        await asyncio.wait_for(draining, TIMEOUT_S)


# Stopping.


async def test_stopping_ends_sessions_after_their_last_frame(address: str) -> None:
    """If a stop follows a drain's aborts, the terminal event still arrives before the stream ends."""
    async with running_worker(address) as worker, in_session(address) as peer:
        await peer.send(submit=submit_message(LONG, slots=[0]))
        await peer.read()
        await worker.drain(0)

        await worker.stop()

        await peer.read_until_ended(0)
        assert peer.finishes[0].reason == pb.FINISH_REASON_ABORT
        with contextlib.suppress(grpc.aio.AioRpcError):
            assert await asyncio.wait_for(peer.call.read(), TIMEOUT_S) is grpc.aio.EOF


async def test_stopping_twice_or_before_the_start_is_safe(address: str) -> None:
    """A stop has no precondition."""
    server = WorkerServer(SimulatedEngine(SimulationSettings()), WorkerSettings(address))
    await server.stop()

    async with running_worker(address) as worker:
        await worker.stop()


# The engine's death.


async def test_a_dead_engine_ends_every_slot_with_an_error(address: str) -> None:
    """Every sequence of every session ends once, with ERROR and the reason, which `serve` then raises."""
    engine = SimulatedEngine(SimulationSettings(step_ms=1, faults=FaultPlan.parse(["crash@tokens=60"])))
    async with (
        running_worker(address, engine) as worker,
        in_session(address) as one,
        in_session(address) as two,
        connected_peer(address) as prober,
    ):
        serving = asyncio.create_task(worker.serve(asyncio.Event()))
        await one.send(submit=submit_message(LONG, slots=[0, 1]))
        await two.send(submit=submit_message(LONG, slots=[0]))
        await one.read_until_ended(0, 1)
        await two.read_until_ended(0)

        with pytest.raises(EngineFailed, match="crashed the engine"):
            await asyncio.wait_for(serving, TIMEOUT_S)
        for peer in (one, two):
            assert {finish.reason for finish in peer.finishes.values()} == {pb.FINISH_REASON_ERROR}
            assert all("crashed the engine" in finish.error_message for finish in peer.finishes.values())
            assert set(peer.endings.values()) == {1}
        assert [await prober.health(service) for service in SERVICES] == ["NOT_SERVING"] * len(SERVICES)
        await one.send(submit=submit_message(slots=[2]))
        await one.read_until_ended(2)
        assert "crashed the engine" in one.refusals[0].message


async def test_an_engine_that_fails_without_finishes_ends_serving(address: str) -> None:
    """Steps that fail end `serve` with the engine's reason and turn all health to NOT_SERVING."""
    engine = ScriptedEngine()
    async with running_worker(address, engine) as worker, connected_peer(address) as prober:
        serving = asyncio.create_task(worker.serve(asyncio.Event()))
        engine.die("out of memory")

        with pytest.raises(EngineFailed, match="out of memory"):
            await asyncio.wait_for(serving, TIMEOUT_S)
        assert await prober.health("liveness") == "NOT_SERVING"


async def test_an_engine_that_stops_stepping_has_failed(address: str) -> None:
    """Steps that end without a stop are a failure too."""
    engine = ScriptedEngine()
    async with running_worker(address, engine) as worker:
        serving = asyncio.create_task(worker.serve(asyncio.Event()))
        engine.end_steps()

        with pytest.raises(EngineFailed, match="stopped stepping"):
            await asyncio.wait_for(serving, TIMEOUT_S)
