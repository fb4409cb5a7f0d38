"""Inputs that a plain vLLM server pools, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.transport.vllm_http.sessions import vllm_session
from tests.plain_vllm_server import MODEL, FakeVllmServer
from tests.workers import Listener, until
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.submission import PooledInputs, Submission
from tokenwire.errors import InvalidRequest, Overloaded, Unavailable, WorkerLost
from tokenwire.v1 import inference_pb2 as pb

VECTORS = bytes(range(16))
"""Of two inputs."""


@pytest.fixture
async def session(server: FakeVllmServer, directory: Path) -> AsyncIterator[WorkerSession]:
    """A session with a server that pools."""
    server.pools_for = ("embed", 2)
    async with vllm_session(server, directory) as session:
        await until(lambda: session.state is SessionState.READY)
        yield session


def inputs(request_id: str = "r") -> Submission:
    """Return two inputs."""
    pooled = PooledInputs(pb.PoolingParams(task="embed", dtype="float32"), [2, 1])
    return Submission(request_id=request_id, prompt_token_ids=[5, 6, 7], max_tokens=0, pooled=pooled)


async def test_a_server_that_pools_is_announced_as_one(session: WorkerSession) -> None:
    """With its task and the width of its results; it needs no routes for token ids."""
    assert session.model is not None
    assert list(session.model.tasks) == ["embed"]
    assert (session.model.pooling.score, session.model.pooling.width) == ("bi-encoder", 2)


async def test_a_batch_is_one_request(server: FakeVllmServer, session: WorkerSession) -> None:
    """Each input ends with its part of the response, and frees its slot."""
    listeners = [Listener(), Listener()]
    session.submit(inputs(), listeners)
    pooling = await server.poolings.get()
    pooling.respond(VECTORS)
    for listener in listeners:
        await listener.ended.wait()

    assert (pooling.path, pooling.body["input"], pooling.body["model"]) == ("/v1/embeddings", [[5, 6], [7]], MODEL)
    results = [listener.finish.pooled for listener in listeners if listener.finish is not None]
    assert [result.data for result in results] == [VECTORS[:8], VECTORS[8:]]
    assert session.open_slots == 0


async def test_a_batch_that_nobody_needs_is_aborted(server: FakeVllmServer, session: WorkerSession) -> None:
    """By closing its connection, once no input of it is needed."""
    listeners = [Listener(), Listener()]
    slots = session.submit(inputs(), listeners)
    pooling = await server.poolings.get()

    session.abort(slots[:1])
    await until(lambda: session.open_slots == 1)
    assert not pooling.left.is_set()
    session.abort(slots[1:])

    await asyncio.wait_for(pooling.left.wait(), 10)
    await until(lambda: session.open_slots == 0)


async def test_the_rest_of_a_batch_is_computed(server: FakeVllmServer, session: WorkerSession) -> None:
    """Where some of its inputs were aborted: their results are dropped."""
    listeners = [Listener(), Listener()]
    slots = session.submit(inputs(), listeners)
    pooling = await server.poolings.get()
    session.abort(slots[:1])
    await until(lambda: session.open_slots == 1)
    pooling.respond(VECTORS)
    await listeners[1].ended.wait()

    assert listeners[1].finish is not None
    assert listeners[1].finish.pooled.data == VECTORS[8:]
    assert session.open_slots == 0


async def test_own_batches_are_aborted_by_their_ids(server: FakeVllmServer, session: WorkerSession) -> None:
    """Both inputs of one, and none of another."""
    listeners, others = [Listener(), Listener()], [Listener(), Listener()]
    session.submit(inputs("mine"), listeners)
    session.submit(inputs("other"), others)

    assert await FleetAborts(lambda: [session]).by_id(["mine"]) == 2

    for listener in listeners:
        await listener.ended.wait()
    assert session.open_slots == 2


@pytest.mark.parametrize(("status", "kind"), [(400, InvalidRequest), (429, Overloaded), (503, Unavailable)])
async def test_rejections_are_of_the_whole_batch(
    server: FakeVllmServer, session: WorkerSession, status: int, kind: type[Exception]
) -> None:
    """With the server's status and message."""
    listeners = [Listener(), Listener()]
    session.submit(inputs(), listeners)
    (await server.poolings.get()).fail(status, "because")
    for listener in listeners:
        await listener.ended.wait()

    assert [(type(listener.error), str(listener.error)) for listener in listeners] == [(kind, "because")] * 2


async def test_an_engine_error_ends_all_inputs(server: FakeVllmServer, session: WorkerSession) -> None:
    """A 500, or numbers that are not those of two results."""
    for status, content in ((500, b""), (200, bytes(9))):
        listeners = [Listener(), Listener()]
        session.submit(inputs(), listeners)
        pooling = await server.poolings.get()
        pooling.fail(status, "it broke") if status == 500 else pooling.respond(content)
        for listener in listeners:
            await listener.ended.wait()
            assert listener.finish is not None
            assert listener.finish.reason == pb.FINISH_REASON_ERROR
    assert session.open_slots == 0


async def test_a_broken_response_is_lost_alone(server: FakeVllmServer, session: WorkerSession) -> None:
    """While the server is healthy: its inputs are computed elsewhere, or again."""
    listeners = [Listener(), Listener()]
    session.submit(inputs(), listeners)
    (await server.poolings.get()).break_off()
    for listener in listeners:
        await listener.ended.wait()
        assert type(listener.error) is Unavailable
    assert session.state is SessionState.READY


async def test_an_unhealthy_server_loses_its_batches(server: FakeVllmServer, session: WorkerSession) -> None:
    """And the session with them."""
    listeners = [Listener(), Listener()]
    session.submit(inputs(), listeners)
    pooling = await server.poolings.get()
    server.healthy = False
    pooling.break_off()
    for listener in listeners:
        await listener.ended.wait()
        assert isinstance(listener.error, WorkerLost)
