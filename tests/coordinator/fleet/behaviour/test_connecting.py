"""Sessions become ready, drain, are lost and reconnect, over real sockets."""

import asyncio
import gc
from typing import Any

import grpc
import pytest

from tests.coordinator.fleet.sessions import Requests, ready_session, session_with
from tests.workers import Listener, SessionContext, running_worker, scripted_worker, submission, until, welcome
from tokenwire.coordinator.fleet.session import FetchFiles
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.errors import InvalidRequest, WorkerDraining, WorkerLost
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import inference_pb2 as pb


async def test_a_session_reconnects_to_its_worker(address: str) -> None:
    """When the worker ends, open requests fail with the reason; when it is back, requests work again."""
    async with session_with(address) as session:
        async with running_worker(address):
            await until(lambda: session.state is SessionState.READY)
            lost = Listener()
            session.submit(submission(max_tokens=20_000), [lost])
            await lost.moved.wait()
        await lost.ended.wait()
        # A worker that shuts down ends its streams in order: the last event is an abort, or the loss of the session.
        assert isinstance(lost.error, WorkerLost) or lost.finish is not None
        await until(lambda: session.state is SessionState.CONNECTING)
        assert session.open_slots == 0

        async with running_worker(address):
            await until(lambda: session.state is SessionState.READY)
            found = Listener()
            session.submit(submission(), [found])
            await found.ended.wait()
            assert found.finish is not None


async def test_a_lost_session_leaves_no_task_behind(address: str) -> None:
    """gRPC's task that reads commands ends with the session; collected while it waits, it would be logged."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with session_with(address) as session:
        async with running_worker(address):
            await until(lambda: session.state is SessionState.READY)
        await until(lambda: session.state is SessionState.CONNECTING)
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)

    assert reported == []
    assert [task for task in asyncio.all_tasks() if "request_iterator" in repr(task)] == []


async def test_a_lost_session_has_a_reason(address: str) -> None:
    """Listeners get how the session ended, not an earlier error."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome())
        await anext(requests)
        await context.abort(grpc.StatusCode.INTERNAL, "the engine melted")

    async with scripted_worker(address, script), ready_session(address) as session:
        listener = Listener()
        session.submit(submission(), [listener])

        await listener.ended.wait()

        assert isinstance(listener.error, WorkerLost)
        assert "the engine melted" in listener.error.message
        assert listener.error.retry_after_s == 1
        assert session.alive is None


async def test_the_backoff_is_short_again_after_a_session_that_worked(address: str) -> None:
    """A session that was ready and is lost is reopened soon, however often connecting had failed before."""
    sessions = 0
    enough = asyncio.Event()

    async def script(requests: Requests, context: SessionContext) -> None:
        nonlocal sessions
        sessions += 1
        if sessions == 5:
            enough.set()
        await anext(requests)
        if sessions < 4:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        await context.write(welcome())
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    async with scripted_worker(address, script), session_with(address):
        await until(lambda: sessions == 4)
        # The next backoff would be at least 2.5 s if it were doubled too.
        await asyncio.wait_for(enough.wait(), 2)


async def test_another_major_version_is_reported(address: str) -> None:
    """A worker with another protocol version gets no requests, and the reason names what to upgrade."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await anext(requests)
        await context.write(welcome(major=2))
        await asyncio.Event().wait()

    async with scripted_worker(address, script), session_with(address) as session:
        await until(lambda: "upgrade tokenwire on this side" in session.last_error)

        assert session.state is SessionState.CONNECTING


async def test_a_worker_that_rejects_our_version_is_reported(address: str) -> None:
    """Its message is the session's error."""

    async def script(requests: Requests, context: SessionContext) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "upgrade tokenwire on coordinator test.")

    async with scripted_worker(address, script), session_with(address) as session:
        await until(lambda: session.last_error == "upgrade tokenwire on coordinator test.")


@pytest.mark.parametrize("first", [pb.SessionResponse(frame=pb.StepFrame()), pb.SessionResponse(), None])
async def test_a_worker_that_does_not_start_with_a_welcome_is_reported(
    address: str, first: pb.SessionResponse | None
) -> None:
    """Another first event, or none, ends the session; then the coordinator reconnects."""
    sessions = 0

    async def script(requests: Requests, context: SessionContext) -> None:
        nonlocal sessions
        sessions += 1
        if first is not None:
            await context.write(first)
            await asyncio.Event().wait()

    async with scripted_worker(address, script), session_with(address) as session:
        await until(lambda: "welcome" in session.last_error)
        assert session.state is SessionState.CONNECTING

        await until(lambda: sessions == 2)


async def test_a_model_is_prepared_before_its_worker_is_ready(address: str) -> None:
    """The preparation can fetch the tokenizer, and the session waits for it."""
    fetched: dict[str, bytes] = {}
    seen: list[pb.Model] = []
    prepared = asyncio.Event()

    async def prepare(model: pb.Model, fetch: FetchFiles) -> None:
        seen.append(model)
        fetched.update(await fetch())
        await prepared.wait()

    async with running_worker(address), session_with(address, prepare) as session:
        await until(lambda: bool(fetched))
        assert session.state is SessionState.CONNECTING
        assert tokenizer_digest(fetched) == seen[0].tokenizer_digest

        prepared.set()
        await until(lambda: session.state is SessionState.READY)


async def test_a_model_that_cannot_be_prepared_is_reported_and_retried(address: str) -> None:
    """The failure is the session's error, and does not end the attempts."""
    errors: list[str] = []

    async def prepare(model: pb.Model, fetch: FetchFiles) -> None:
        errors.append(session.last_error)
        if len(errors) == 1:
            raise InvalidRequest("no such tokenizer")

    async with running_worker(address), session_with(address, prepare) as session:
        await until(lambda: session.state is SessionState.READY)

        assert errors[1:] == ["no such tokenizer"]


async def test_a_draining_worker_is_not_ready_but_finishes(address: str) -> None:
    """After the announcement a worker gets no new requests; running ones continue, and a late one is refused."""
    async with running_worker(address) as worker, ready_session(address) as session:
        running, late = Listener(), Listener()
        session.submit(submission(max_tokens=100), [running])
        await running.moved.wait()

        draining = asyncio.create_task(worker.drain(10))
        await until(lambda: session.state is SessionState.DRAINING)
        session.submit(submission(), [late])

        await running.ended.wait()
        await late.ended.wait()
        await draining
        assert session.state is not SessionState.READY
        assert len(running.token_ids) == 100
        assert isinstance(late.error, WorkerDraining)


async def test_a_worker_that_is_draining_already_is_never_ready(address: str) -> None:
    """Its welcome reports it."""
    async with running_worker(address) as worker:
        await worker.drain(0)
        async with session_with(address) as session:
            await until(lambda: session.state is SessionState.DRAINING)

            assert session.state is not SessionState.READY
