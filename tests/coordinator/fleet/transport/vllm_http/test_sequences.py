"""Sequences of a plain vLLM server, over real HTTP."""

import asyncio
from dataclasses import replace

import pytest

from tests.coordinator.fleet.transport.vllm_http.sessions import EOS
from tests.plain_vllm_server import MODEL, FakeVllmServer
from tests.turns import TurnsOfOthers
from tests.workers import PROMPT, Listener, submission, until
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb


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


async def test_a_full_response_has_rows_of_its_tokens(server: FakeVllmServer, session: WorkerSession) -> None:
    """They come in parts where there are many, and all before the end."""
    submit = replace(submission(), prompt_token_ids=PROMPT[:1])
    submit.sampling_params.prompt_logprobs = 0
    submit.sampling_params.logprobs = 1
    scored = [{"token_id": token_id, "logprob": -1.0, "rank": 1} for token_id in range(1200)]
    content = {"content": [{**each, "top_logprobs": [each]} for each in scored]}
    choice = {"index": 0, "token_ids": list(range(1200)), "finish_reason": "length", "logprobs": content}
    server.full = {"choices": [choice], "prompt_logprobs": [None]}
    listener = Listener()
    session.submit(submit, [listener])
    await listener.ended.wait()

    assert listener.token_ids == list(range(1200))
    assert [token_id for rows in listener.rows for token_id in rows.token_ids[::2]] == listener.token_ids


async def test_many_sequences_begin_in_turns(server: FakeVllmServer, session: WorkerSession) -> None:
    """All of them get the prompt, and those that have not begun can be aborted."""
    prompt = [*PROMPT, *range(30_000)]
    listeners = [Listener() for _ in range(40)]
    turns = TurnsOfOthers()
    slots = session.submit(replace(submission(), prompt_token_ids=prompt), listeners)
    first = await server.generations.get()

    assert turns.count > 4
    session.abort(slots[20:])
    first.emit(7, finish="length")
    others = [await server.generations.get() for _ in range(19)]
    for generation in others:
        generation.emit(7, finish="length")
    await until(lambda: session.open_slots == 0)

    assert all(generation.body["token_ids"] == prompt for generation in (first, *others))
    assert sum(listener.token_ids == [7] for listener in listeners) >= 20
