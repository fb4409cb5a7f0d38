"""What the failure of a request of a plain vLLM server means, over real HTTP."""

import pytest

from tests.plain_vllm_server import FakeVllmServer
from tests.workers import Listener, submission, until
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.errors import InvalidRequest, Overloaded, Unavailable, WorkerLost
from tokenwire.v1 import inference_pb2 as pb


async def test_a_broken_stream_is_lost_alone(server: FakeVllmServer, session: WorkerSession) -> None:
    """While the server is healthy, only that request fails, after its tokens."""
    listener, other = Listener(), Listener()
    session.submit(submission(), [listener])
    generation = await server.generations.get()
    session.submit(submission(), [other])
    neighbour = await server.generations.get()
    generation.emit(5)
    generation.break_off()
    await listener.ended.wait()

    assert listener.token_ids == [5]
    assert isinstance(listener.error, Unavailable)
    assert session.state is SessionState.READY
    neighbour.emit(6, finish="stop")
    await other.ended.wait()
    assert other.error is None


async def test_an_unhealthy_server_loses_all_requests(server: FakeVllmServer, session: WorkerSession) -> None:
    """A stream breaks, and /health gives the reason: all requests fail as lost, and the session reconnects later."""
    listeners = [Listener(), Listener()]
    for listener in listeners:
        session.submit(submission(), [listener])
    generations = [await server.generations.get() for _ in listeners]
    server.healthy = False
    generations[0].break_off()
    for listener in listeners:
        await listener.ended.wait()
        assert isinstance(listener.error, WorkerLost)
    first = session.instance_id
    server.healthy = True

    await until(lambda: session.state is SessionState.READY)
    assert session.instance_id != first


@pytest.mark.parametrize(
    ("status", "kind"), [(400, InvalidRequest), (404, InvalidRequest), (429, Overloaded), (503, Unavailable)]
)
async def test_rejections_keep_their_meaning(
    server: FakeVllmServer, session: WorkerSession, status: int, kind: type[Exception]
) -> None:
    """The server's status and message become the request's error."""
    server.refusal = (status, "because")
    listener = Listener()
    session.submit(submission(), [listener])
    await listener.ended.wait()

    assert type(listener.error) is kind
    assert str(listener.error) == "because"


async def test_an_engine_error_ends_the_request(server: FakeVllmServer, session: WorkerSession) -> None:
    """An error in the stream, a 500, or an invalid response is the engine's failure."""
    for event in ({"error": {"message": "it broke", "code": 500}}, {"choices": [{"token_ids": "none"}]}):
        listener = Listener()
        session.submit(submission(), [listener])
        (await server.generations.get()).send(event)
        await listener.ended.wait()
        assert listener.finish is not None
        assert listener.finish.reason == pb.FINISH_REASON_ERROR
    assert session.open_slots == 0
