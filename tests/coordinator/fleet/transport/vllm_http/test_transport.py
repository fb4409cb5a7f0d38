"""A plain vLLM server behind a session, over real HTTP.

One file, since all tests share one server and session, and each is one property of the same transport.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.plain_vllm_server import MODEL, FakeVllmServer, fake_vllm_server
from tests.workers import PROMPT, Listener, accept, running_session, submission, until
from tokenwire.coordinator.fleet.aborts import FleetAborts
from tokenwire.coordinator.fleet.control_client import call_worker
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.transport.vllm_http.settings import VllmHttpSettings
from tokenwire.coordinator.fleet.transport.vllm_http.transport import VllmHttpTransport
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.errors import InvalidRequest, Overloaded, Unavailable, Unsupported, WorkerLost
from tokenwire.v1 import control_pb2
from tokenwire.v1 import inference_pb2 as pb

EOS = 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model's directory; the tokenizer is not needed here."""
    config = {"vocab_size": 1000, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "eos_token_id": EOS}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "max_new_tokens": 64, "bos_token_id": 1}')
    return tmp_path


@pytest.fixture
async def server() -> AsyncIterator[FakeVllmServer]:
    """A plain vLLM server."""
    async with fake_vllm_server() as fake:
        yield fake


@asynccontextmanager
async def vllm_session(server: FakeVllmServer, directory: Path | None) -> AsyncIterator[WorkerSession]:
    """Run a session with a plain vLLM server."""
    settings = VllmHttpSettings(directory, "secret")
    session = WorkerSession(server.url, "test", accept, open_transport=partial(VllmHttpTransport, settings))
    async with running_session(session):
        yield session


@pytest.fixture
async def session(server: FakeVllmServer, directory: Path) -> AsyncIterator[WorkerSession]:
    """A session that takes requests."""
    async with vllm_session(server, directory) as session:
        await until(lambda: session.state is SessionState.READY)
        yield session


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


async def test_tokens_arrive_as_they_are_generated(server: FakeVllmServer, session: WorkerSession) -> None:
    """A request is sent as ids; each event is a step; the last one ends it and frees the slot."""
    listener = Listener()
    session.submit(submission(max_tokens=5), [listener])
    generation = await server.generations.get()
    generation.emit(5)
    await listener.moved.wait()
    assert listener.token_ids == [5]
    assert len(listener.prefills) == 1
    generation.emit(6, 7)
    generation.emit(8, finish="length")
    await listener.ended.wait()

    assert listener.token_ids == [5, 6, 7, 8]
    assert listener.finish is not None
    assert listener.finish.reason == pb.FINISH_REASON_LENGTH
    await until(lambda: session.open_slots == 0)
    body = generation.body
    assert body["token_ids"] == PROMPT
    assert (body["model"], body["stream"]) == (MODEL, True)
    assert body["sampling_params"] == {"max_tokens": 5, "n": 1, "detokenize": False}


async def test_each_sequence_is_its_own_request(server: FakeVllmServer, session: WorkerSession) -> None:
    """It has its own seed and finish, and a unique id."""
    submit = submission()
    submit.sampling_params.seed = 40
    listeners = [Listener(), Listener()]
    session.submit(submit, listeners)
    generations = [await server.generations.get() for _ in range(2)]
    generations.sort(key=lambda each: int(each.body["sampling_params"]["seed"]))
    for generation, finish in zip(generations, ("stop", "length"), strict=True):
        generation.emit(generation.body["sampling_params"]["seed"], finish=finish)
    for listener in listeners:
        await listener.ended.wait()

    assert [listener.token_ids for listener in listeners] == [[40], [41]]
    assert [listener.finish and listener.finish.reason for listener in listeners] == [
        pb.FINISH_REASON_STOP,
        pb.FINISH_REASON_LENGTH,
    ]
    assert len({generation.server_id for generation in generations}) == 2


@pytest.mark.parametrize(("stop", "matched"), [(None, None), (9, "stop_token_id"), (EOS, "eos_token_id")])
async def test_the_end_of_sequence_token_is_no_stop_id(
    server: FakeVllmServer, session: WorkerSession, stop: int | None, matched: str | None
) -> None:
    """Servers without a tokenizer report it as one: the model's configuration distinguishes them."""
    listener = Listener()
    session.submit(submission(), [listener])
    (await server.generations.get()).emit(stop or 3, finish="stop", stop=stop)
    await listener.ended.wait()

    assert listener.finish is not None
    assert listener.finish.WhichOneof("matched") == matched


async def test_an_abort_is_sent_by_id(server: FakeVllmServer, session: WorkerSession) -> None:
    """For a sequence with tokens; the slot is free when the server has ended it; others continue."""
    listener, other = Listener(), Listener()
    slots = session.submit(submission(), [listener])
    generation = await server.generations.get()
    session.submit(submission(), [other])
    neighbour = await server.generations.get()
    generation.emit(5)
    await listener.moved.wait()

    session.abort(slots)

    await until(lambda: generation.aborted and session.open_slots == 1)
    assert not neighbour.aborted
    neighbour.emit(6, finish="stop")
    await other.ended.wait()


async def test_a_sequence_without_tokens_is_aborted_by_disconnecting(
    server: FakeVllmServer, session: WorkerSession
) -> None:
    """The server may not have its id yet."""
    listener = Listener()
    slots = session.submit(submission(), [listener])
    generation = await server.generations.get()

    session.abort(slots)

    await until(lambda: session.open_slots == 0)
    await asyncio.wait_for(generation.left.wait(), 10)


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


async def test_a_request_that_the_server_aborts_is_lost(server: FakeVllmServer, session: WorkerSession) -> None:
    """Servers abort running requests on shutdown: no client requested it."""
    listener = Listener()
    session.submit(submission(), [listener])
    generation = await server.generations.get()
    generation.emit(5)
    generation.emit(finish="abort")
    await listener.ended.wait()

    assert listener.token_ids == [5]
    assert isinstance(listener.error, Unavailable)


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


@pytest.mark.parametrize("count", [0, 2, -1])
async def test_log_probabilities_become_rows(server: FakeVllmServer, session: WorkerSession, count: int) -> None:
    """Each row has the token, then the most likely ones by rank: one more is requested, so that none is missing."""
    submit = submission()
    submit.sampling_params.logprobs = count
    listener = Listener()
    session.submit(submit, [listener])
    generation = await server.generations.get()
    likely = [{"token_id": 50 + rank, "logprob": -rank, "rank": rank} for rank in (1, 2, 3)]
    sampled = {"token_id": 7, "logprob": -9.0, "rank": 40}
    shown = [sampled, *likely] if count else [sampled]
    generation.emit(7, finish="length", logprobs={"content": [{**sampled, "top_logprobs": shown}]})
    await listener.ended.wait()

    assert generation.body["sampling_params"]["logprobs"] == {0: 0, 2: 3, -1: -1}[count]
    (rows,) = listener.rows
    assert list(rows.token_ids) == {0: [7], 2: [7, 51, 52], -1: [7, 51, 52, 53]}[count]
    assert rows.width == len(rows.token_ids)
    assert list(rows.sampled_ranks) == [40]


async def test_prompt_log_probabilities_come_with_the_full_response(
    server: FakeVllmServer, session: WorkerSession
) -> None:
    """Streams omit them, so such a request is not streamed."""
    submit = replace(submission(), prompt_token_ids=PROMPT[:2])
    submit.sampling_params.prompt_logprobs = 1
    second = submit.prompt_token_ids[1]
    position = {str(second): {"logprob": -3.0, "rank": 5}, "9": {"logprob": -0.5, "rank": 1}}
    choice = {"index": 0, "token_ids": [4, 5], "finish_reason": "length", "stop_reason": None}
    server.full = {"choices": [choice], "prompt_logprobs": [None, position]}
    listener = Listener()
    session.submit(submit, [listener])
    await listener.ended.wait()

    assert listener.token_ids == [4, 5]
    (info,) = listener.prefills
    assert list(info.prompt_logprobs.token_ids) == [second, 9]
    assert list(info.prompt_logprobs.logprobs) == [-3.0, -0.5]


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

    transport = VllmHttpTransport(VllmHttpSettings(directory, "secret"), server.url, commands())
    assert await transport.read() is not None

    with pytest.raises(Unavailable, match="unforeseen"):
        await transport.read()
    await transport.close()
