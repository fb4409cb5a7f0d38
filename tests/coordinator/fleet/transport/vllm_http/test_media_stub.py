"""Pictures of requests to a plain vLLM server, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.fleet.transport.vllm_http.sessions import vllm_session
from tests.plain_vllm_server import PLACEHOLDER, FakeVllmServer
from tests.workers import Listener, until
from tokenwire.coordinator.fleet.media_answers import MOST_TOKEN_IDS
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.errors import InvalidRequest, Unavailable
from tokenwire.v1 import inference_pb2 as pb

PICTURE = MediaContent(b"a picture")
PROMPT = [5, PLACEHOLDER, 6]
EXPANDED = [5, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, 6]


@pytest.fixture
async def session(server: FakeVllmServer, directory: Path) -> AsyncIterator[WorkerSession]:
    """A session with a server that takes pictures."""
    server.pictures = 2
    async with vllm_session(server, directory) as session:
        await until(lambda: session.state is SessionState.READY)
        yield session


def with_picture(**params: Any) -> Submission:
    """Return a request with a picture."""
    media = MediaPrompt([PICTURE], PROMPT, len(EXPANDED), [(1, 3)])
    return Submission("r", EXPANDED, pb.SamplingParams(**params), media=media)


async def test_a_server_that_takes_pictures_is_announced_as_one(session: WorkerSession) -> None:
    """With their number."""
    assert session.model is not None
    assert list(session.model.media) == [pb.MediaKind(modality="image", limit=2)]


async def test_a_prompt_is_expanded_by_one_token(server: FakeVllmServer, session: WorkerSession) -> None:
    """The response has the ids as the engine sees them; what begins with the same ids costs the server nothing."""
    first = await session.media.expand(PROMPT, [PICTURE], None, MOST_TOKEN_IDS, "salt")
    assert (list(first.token_ids), [*first.spans]) == (EXPANDED, [(1, 3)])
    assert server.received == [PICTURE.data]
    server.refusal = (500, "asked again")

    second = await session.media.expand([*PROMPT, 7, 8], [PICTURE], None, MOST_TOKEN_IDS)
    assert list(second.token_ids) == [*EXPANDED, 7, 8]


async def test_the_bytes_of_a_picture_are_sent_once(server: FakeVllmServer, session: WorkerSession) -> None:
    """Both for expanding its prompt and for the reply, whose request has a placeholder and a name."""
    await session.media.expand(PROMPT, [PICTURE], None, MOST_TOKEN_IDS)
    listener = Listener()
    session.submit(with_picture(), [listener])
    generation = await server.generations.get()
    generation.emit(3, finish="stop")
    await listener.ended.wait()

    assert generation.body["token_ids"] == PROMPT
    (part,) = generation.body["content_parts"]
    assert (part["type"], part["url"]) == ("image_url", None)
    assert part["uuid"] in server.kept
    assert PICTURE.digest.hex() not in server.kept
    assert server.received == [PICTURE.data]


async def test_a_picture_that_the_server_dropped_comes_again(server: FakeVllmServer, session: WorkerSession) -> None:
    """Nobody notices."""
    await session.media.expand(PROMPT, [PICTURE], None, MOST_TOKEN_IDS)
    server.kept.clear()
    listener = Listener()
    session.submit(with_picture(), [listener])
    (await server.generations.get()).emit(3, finish="stop")
    await listener.ended.wait()

    assert listener.error is None
    assert server.received == [PICTURE.data] * 2


async def test_scores_of_a_prompt_are_of_its_expanded_ids(server: FakeVllmServer, session: WorkerSession) -> None:
    """The server reports both."""
    known = {str(token_id): {"logprob": -1.0, "rank": 1} for token_id in (PLACEHOLDER, 6)}
    choice = {"index": 0, "token_ids": [4], "finish_reason": "length", "stop_reason": None}
    server.full = {
        "choices": [choice],
        "prompt_token_ids": EXPANDED,
        "prompt_logprobs": [None, *[{str(each): known[str(each)]} for each in EXPANDED[1:]]],
    }
    listener = Listener()
    session.submit(with_picture(prompt_logprobs=0), [listener])
    await listener.ended.wait()

    (info,) = listener.prefills
    assert list(info.prompt_logprobs.token_ids) == EXPANDED[1:]


async def test_what_a_server_says_of_a_picture_is_the_clients(server: FakeVllmServer, session: WorkerSession) -> None:
    """Whether it cannot be decoded, or there are too many; options that it does not take are named."""
    with pytest.raises(InvalidRequest, match="At most 2 image"):
        await session.media.expand([PLACEHOLDER] * 3, [PICTURE] * 3, None, MOST_TOKEN_IDS)
    server.refusal = (400, "Failed to load image: truncated")
    with pytest.raises(InvalidRequest, match="Failed to load image"):
        await session.media.expand(PROMPT, [PICTURE], None, MOST_TOKEN_IDS)
    with pytest.raises(InvalidRequest, match="mm_processor_kwargs") as refused:
        await session.media.expand(PROMPT, [PICTURE], "{}", MOST_TOKEN_IDS)
    assert refused.value.param == "mm_processor_kwargs"


async def test_a_server_that_fails_is_another_workers_chance(server: FakeVllmServer, session: WorkerSession) -> None:
    """Its error is one after which another worker is asked."""
    server.refusal = (503, "busy")
    with pytest.raises(Unavailable, match="busy"):
        await session.media.expand(PROMPT, [PICTURE], None, MOST_TOKEN_IDS)


async def test_few_prompts_are_expanded_at_a_time(server: FakeVllmServer, session: WorkerSession) -> None:
    """They are ahead of the queue, so the others wait."""
    server.expands.clear()
    prompts = [[number, PLACEHOLDER] for number in range(12)]
    pictures = [MediaContent(bytes([number])) for number in range(12)]
    expanding = [
        asyncio.create_task(session.media.expand(ids, [picture], None, MOST_TOKEN_IDS))
        for ids, picture in zip(prompts, pictures, strict=True)
    ]
    await until(lambda: server.expanding == 8)
    server.expands.set()

    assert [list(each.token_ids) for each in await asyncio.gather(*expanding)] == [
        [number, *[PLACEHOLDER] * 3] for number in range(12)
    ]
    assert server.most_expanding == 8


async def test_tenants_take_turns_at_having_prompts_expanded(server: FakeVllmServer, session: WorkerSession) -> None:
    """The prompt of one waits for none of those that another one has in line."""
    server.expands.clear()
    pictures = [MediaContent(bytes([number])) for number in range(13)]
    tasks = []
    for number, picture in enumerate(pictures):
        tenant = "few" if number == 12 else "many"
        call = session.media.expand([number, PLACEHOLDER], [picture], None, MOST_TOKEN_IDS, tenant=tenant)
        tasks.append(asyncio.create_task(call))
    await until(lambda: server.expanding == 8 and session.media.open_calls == 13)
    tasks[0].cancel()
    await until(lambda: len(server.received) == 9)
    server.expands.set()
    await asyncio.gather(*tasks[1:])

    assert server.received.index(pictures[12].data) == 8
