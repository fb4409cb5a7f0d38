"""A plain vLLM server behind a session, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.coordinator.fleet.transport.vllm_http.sessions import vllm_session
from tests.plain_vllm_server import MODEL, FakeVllmServer
from tests.workers import Listener, submission, until
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.transport import VllmHttpTransport
from tokenwire.coordinator.fleet.transport.vllm_http.unsent_media import UnsentMedia
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.errors import InvalidRequest, Unavailable, Unsupported, WorkerLost
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb


async def test_a_model_is_described_by_the_server_and_its_directory(
    server: FakeVllmServer, session: WorkerSession
) -> None:
    """Names and length are from the server, the rest from the directory; every request has the key."""
    model = session.model
    assert model is not None
    assert list(model.names) == [MODEL]
    assert (model.max_model_len, model.max_token_id) == (512, 999)
    assert json.loads(model.default_sampling_params_json) == {"temperature": 0.6, "max_tokens": 64}
    assert (model.engine, model.model_type) == ("vllm 0.32.0 (serve)", "llama")
    assert model.architecture == "LlamaForCausalLM"
    assert session.instance_id
    assert server.keys == {"Bearer secret"}
    assert "secret" not in repr(VllmHttpSettings(None, "secret"))


async def test_own_requests_are_aborted_by_their_ids(server: FakeVllmServer, session: WorkerSession) -> None:
    """FleetAborts by id reach this coordinator's requests; their listeners get the finish."""
    listener = Listener()
    session.submit(submission(request_id="mine"), [listener])
    (await server.generations.get()).emit(5)
    await listener.moved.wait()

    assert await FleetAborts(lambda: [session]).by_id(["mine", "another"]) == 1

    await listener.ended.wait()
    assert listener.finish is not None
    assert listener.finish.reason == pb.FINISH_REASON_ABORT


async def test_the_servers_metrics_are_relayed(session: WorkerSession) -> None:
    """As those of every worker."""
    text = await Relay(lambda: [session]).text()
    assert f'vllm:x{{worker="{session.address}"}} 1.0' in text.decode().splitlines()


async def test_the_end_of_a_session_ends_its_requests(server: FakeVllmServer, directory: Path) -> None:
    """All connections are closed, and listeners fail with the loss of the worker."""
    listener = Listener()
    async with vllm_session(server, directory) as session:
        await until(lambda: session.state is SessionState.READY)
        session.submit(submission(), [listener])
        generation = await server.generations.get()

    await asyncio.wait_for(generation.left.wait(), 10)
    assert isinstance(listener.error, WorkerLost)


async def test_unsupported_features_are_rejected_by_name(server: FakeVllmServer, session: WorkerSession) -> None:
    """Unsupported fields are a 400; admin operations are a 501."""
    listener = Listener()
    submit = submission()
    submit.sampling_params.logprob_token_ids.append(1)
    session.submit(submit, [listener])
    await listener.ended.wait()

    assert isinstance(listener.error, InvalidRequest)
    assert listener.error.message == "logprob_token_ids is not supported by a plain vLLM server."
    with pytest.raises(Unsupported, match="does not support"):
        await call_worker(session, lambda stub: stub.Sleep(control_pb2.SleepRequest()))


async def test_the_reason_why_a_server_is_not_ready_is_reported(server: FakeVllmServer, directory: Path) -> None:
    """No directory, no token id routes, unhealthy: each is the session's error."""
    async with vllm_session(server, None) as session:
        await until(lambda: "needs --tokenizer DIR" in session.last_error)
    server.enabled = False
    async with vllm_session(server, directory) as session:
        await until(lambda: "start it with --enable-scale-out: " in session.last_error)
    server.healthy = False
    async with vllm_session(server, directory) as session:
        await until(lambda: session.last_error not in ("", "not connected yet"))
        assert session.state is SessionState.CONNECTING


async def test_a_failing_command_ends_the_session(server: FakeVllmServer, directory: Path) -> None:
    """No further command would be executed, and requests would wait for it."""

    async def commands() -> AsyncIterator[pb.SessionRequest]:
        raise ValueError("unforeseen")
        yield pb.SessionRequest()

    transport = VllmHttpTransport(VllmHttpSettings(directory, "secret"), UnsentMedia(None), server.url, commands())
    assert await transport.read() is not None

    with pytest.raises(Unavailable, match="unforeseen"):
        await transport.read()
    await transport.close()
