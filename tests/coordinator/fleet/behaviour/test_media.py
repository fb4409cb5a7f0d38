"""Requests with media on real sockets: what is put where, how often, and what becomes of it when workers are lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.hostile_worker import HostileWorker, running_hostile_worker, server_info, tokenizer_of
from tests.coordinator.fleet.behaviour.cluster import Cluster, some_tokens
from tests.workers import Listener, unix_address, until
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LossReason
from tokenwire.coordinator.fleet.media_expansion import MediaExpander
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.coordinator.media.content import MediaContent
from tokenwire.errors import InvalidRequest, PromptTooLong, Unavailable
from tokenwire.peer_auth.grpc_options import FEATURES_PART_BYTES
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.media.received import ReceivedMedia
from tokenwire.worker.simulated_engine.media import PLACEHOLDER

PROMPT = f"Look: {PLACEHOLDER} What is it?".encode()
PICTURE = MediaContent(b"a picture" * 100_000)
IMAGE_TOKENS = 70


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Return two workers that take pictures."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    for name in ("one", "two"):
        await cluster.start(name, step_ms=4, image_tokens=IMAGE_TOKENS)
    yield cluster
    await cluster.stop()


def received_by(cluster: Cluster, name: str) -> ReceivedMedia:
    """Return what a worker has of media."""
    found: Any = cluster.worker(name)._engine.media
    store: ReceivedMedia = found._received
    return store


async def expanded(
    cluster: Cluster, *items: MediaContent, max_tokens: int = 40, max_token_ids: int = 10_000
) -> Submission:
    """Return a request with media."""
    pictures = items or [PICTURE]
    token_ids, media = await MediaExpander(cluster.pool).expand(
        "simulated", PROMPT, pictures, max_token_ids=max_token_ids
    )
    params = pb.SamplingParams(temperature=0.0)
    return Submission(
        request_id="pictures", prompt_token_ids=token_ids, sampling_params=params, max_tokens=max_tokens, media=media
    )


def send_pictures(cluster: Cluster, submission: Submission, n: int = 1) -> list[Listener]:
    """Submit a request."""
    listeners = [Listener() for _ in range(n)]
    cluster.failover.submit("simulated", submission, listeners)
    return listeners


async def tokens_of(cluster: Cluster, submission: Submission) -> list[int]:
    """Return the tokens of a request."""
    (listener,) = send_pictures(cluster, submission)
    await listener.ended.wait()
    assert listener.error is None
    return listener.token_ids


async def test_a_prompt_is_expanded_by_a_worker_and_collapsed_for_it(two: Cluster) -> None:
    """The coordinator knows the ids that the engine sees, and sends those before; replies depend on the picture."""
    submission = await expanded(two)
    assert len(submission.prompt_token_ids) == len(PROMPT) - len(PLACEHOLDER) + IMAGE_TOKENS
    message = submission.message([0]).submit
    assert bytes(message.prompt_token_ids) == PROMPT
    assert message.media_end == len(PROMPT)
    other = await expanded(two, MediaContent(b"another picture"))
    assert await tokens_of(two, submission) == await tokens_of(two, submission) != await tokens_of(two, other)


async def test_a_picture_is_put_once_to_each_worker(two: Cluster) -> None:
    """Fifty requests with one picture, at once and later, put it twice on two workers."""
    submissions = await asyncio.gather(*(expanded(two) for _ in range(50)))
    listeners = [listener for submission in submissions for listener in send_pictures(two, submission)]
    await asyncio.gather(*(listener.ended.wait() for listener in listeners))
    assert {tuple(listener.token_ids) for listener in listeners} == {tuple(listeners[0].token_ids)}
    await tokens_of(two, await expanded(two))
    assert [received_by(two, name).puts for name in ("one", "two")] == [1, 1]


async def test_a_picture_that_a_worker_has_dropped_is_put_again_unseen(two: Cluster) -> None:
    """Between expansion and submission, and between submissions: the client sees nothing of it."""
    submission = await expanded(two)
    whole = await tokens_of(two, submission)
    for name in ("one", "two"):
        received_by(two, name)._items.clear()
    assert await tokens_of(two, submission) == whole
    for name in ("one", "two"):
        received_by(two, name)._items.clear()
    assert (await expanded(two)).prompt_token_ids == submission.prompt_token_ids


async def test_a_worker_that_keeps_dropping_a_picture_is_given_up(two: Cluster) -> None:
    """A request is not put for ever where there is no room for its picture."""
    submission = await expanded(two, MediaContent(b"x" * 1000))
    for name in ("one", "two"):
        store = received_by(two, name)
        store._items.clear()
        store._memory_bytes = 10
    (session, *_) = two.pool.sessions
    listener = Listener()
    session.submit(submission, [listener])
    await listener.ended.wait()
    assert listener.error is not None
    assert session.open_slots == 0


async def test_the_sequences_of_a_request_share_its_picture(two: Cluster) -> None:
    """Each has its own reply."""
    submission = await expanded(two)
    submission.sampling_params = pb.SamplingParams(temperature=1.0, seed=1)
    listeners = send_pictures(two, submission, n=3)
    await asyncio.gather(*(listener.ended.wait() for listener in listeners))
    assert len({tuple(listener.token_ids) for listener in listeners}) == 3


@pytest.mark.parametrize("generated", [0, 10])
async def test_a_lost_request_goes_on_with_its_picture(two: Cluster, generated: int) -> None:
    """Its worker is lost before its first token or later: the reply is that of an undisturbed run."""
    submission = await expanded(two, max_tokens=120)
    whole = await tokens_of(two, submission)
    (listener,) = send_pictures(two, submission)
    await some_tokens(listener, generated)
    await two.lose(await two.holder())
    await listener.ended.wait()
    assert listener.error is None
    assert listener.token_ids == whole


async def test_an_aborted_request_whose_picture_is_on_its_way_never_starts(two: Cluster) -> None:
    """Its slot is free again, and its worker has heard of nothing."""
    submission = await expanded(two)
    (session, *_) = two.pool.sessions
    session.media._known.clear()
    requests = [two.worker(name)._engine for name in ("one", "two")]
    started: list[Any] = [engine.requests_total for engine in requests]  # type: ignore[attr-defined]
    listener = Listener()
    slots = session.submit(submission, [listener])
    session.abort(slots)
    await until(lambda: session.open_slots == 0)
    assert [engine.requests_total for engine in requests] == started  # type: ignore[attr-defined]
    assert listener.token_ids == []


async def test_an_abort_does_not_wait_for_a_picture_that_is_put(tmp_path: Path) -> None:
    """While 20 MB are on their way to the worker, a stream there gets two more tokens at most once it is aborted."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", step_ms=20, image_tokens=IMAGE_TOKENS)
    handle, (listener,) = cluster.send(max_tokens=10_000)
    await some_tokens(listener)
    received = received_by(cluster, "one")
    session = next(each for each in cluster.pool.sessions if each.state is SessionState.READY)
    expanding = asyncio.create_task(expanded(cluster, MediaContent(bytes(20 * 2**20))))
    await until(lambda: received.used_bytes > 0)
    assert received.puts == 0
    handle.abort()
    await until(lambda: session.open_slots == 0)
    assert received.puts == 0, "the picture has arrived before the stream had ended"
    assert session._slots.discard.stats.overshoot_tokens <= 2
    await expanding
    await cluster.stop()


async def test_a_request_with_a_picture_goes_only_to_workers_that_take_some(tmp_path: Path) -> None:
    """A worker without them gets none, however idle it is; without any other there is an error."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("one", image_tokens=0)
    with pytest.raises(Unavailable):
        await expanded(cluster)
    await cluster.start("two", image_tokens=IMAGE_TOKENS)
    for _ in range(4):
        await tokens_of(cluster, await expanded(cluster))
    engine: Any = cluster.worker("one")._engine
    assert engine.requests_total == 0
    await cluster.stop()


class PictureLiar(HostileWorker):
    """Answers all expansions with a lie."""

    lie: Callable[[pb.ExpandRequest], pb.ExpandResponse]

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Return the lie."""
        return self.lie(request)


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (lambda request: pb.ExpandResponse(token_ids=[65] * (request.max_token_ids + 1)), "1001 ids, where it may"),
        (lambda request: pb.ExpandResponse(token_ids=[65], spans=[pb.MediaSpan()] * 1000), "1 media at 1000 places"),
        (lambda request: pb.ExpandResponse(missing=[b"x"]), "not among the 1 needed"),
        (
            lambda request: pb.ExpandResponse(missing=[b"x" * (4 * 2**20)]),
            "it answered a call for media with too much",
        ),
    ],
)
async def test_a_worker_that_lies_about_a_picture_is_lost_and_another_is_asked(
    tmp_path: Path, lie: Callable[[pb.ExpandRequest], pb.ExpandResponse], problem: str
) -> None:
    """Its session ends, which is seen; the request goes on."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("two", image_tokens=IMAGE_TOKENS)
    honest = unix_address(tmp_path, "two")
    worker = PictureLiar(await server_info(honest), await tokenizer_of(honest))
    worker.lie = lie
    async with running_hostile_worker(worker, unix_address(tmp_path, "one")):
        (liar,) = (each for each in cluster.pool.sessions if each.address == unix_address(tmp_path, "one"))
        await until(lambda: liar.state is SessionState.READY)
        liar.media._known[PICTURE.digest] = None  # so that it is asked first
        submission = await expanded(cluster, max_token_ids=1000)
        assert len(submission.prompt_token_ids) == len(PROMPT) - len(PLACEHOLDER) + IMAGE_TOKENS
        await until(lambda: liar.losses[LossReason.PROTOCOL_ERROR] == 1)
        assert problem in liar.last_error
    await cluster.stop()


class FloodingWorker(HostileWorker):
    """Answers what it is to render with features that do not end."""

    async def render(self, request: pb.RenderRequest) -> AsyncIterator[pb.RenderResponse]:
        """Yield them."""
        yield pb.RenderResponse(part=pb.ExpandResponse(token_ids=[65], spans=[pb.MediaSpan()]))
        while True:
            yield pb.RenderResponse(part=pb.ExpandResponse(features_json=bytes(FEATURES_PART_BYTES)))


async def test_a_worker_whose_features_do_not_end_is_lost_and_another_is_asked(tmp_path: Path) -> None:
    """Its session ends, which is seen; the request goes on."""
    cluster = Cluster(tmp_path, FailoverSettings())
    cluster.connect()
    await cluster.start("two", image_tokens=IMAGE_TOKENS)
    media = (await expanded(cluster)).media
    assert media is not None
    honest = unix_address(tmp_path, "two")
    worker = FloodingWorker(await server_info(honest), await tokenizer_of(honest))
    async with running_hostile_worker(worker, unix_address(tmp_path, "one")):
        (flooding,) = (each for each in cluster.pool.sessions if each.address == unix_address(tmp_path, "one"))
        await until(lambda: flooding.state is SessionState.READY)
        for session in cluster.pool.sessions:
            session.media._known.clear()
        flooding.media._known[PICTURE.digest] = None  # so that it is asked first
        features = json.loads(await MediaExpander(cluster.pool).features("simulated", media, "none"))
        assert features["mm_placeholders"]["image"] == [{"offset": 6, "length": IMAGE_TOKENS}]
        await until(lambda: flooding.losses[LossReason.PROTOCOL_ERROR] == 1)
        assert "rendered pictures to more than 4194304 bytes" in flooding.last_error
    await cluster.stop()


async def test_a_prompt_that_is_too_long_is_so_for_the_client(two: Cluster) -> None:
    """Its ids are not even sent; no worker is to blame."""
    with pytest.raises(PromptTooLong, match=f"contains {len(PROMPT) - len(PLACEHOLDER) + IMAGE_TOKENS} input tokens"):
        await expanded(two, max_token_ids=50)
    assert not any(each.losses[LossReason.PROTOCOL_ERROR] for each in two.pool.sessions)


async def test_what_is_wrong_with_a_picture_is_an_error_of_its_request(two: Cluster) -> None:
    """The refusal of two workers reaches the client."""
    with pytest.raises(InvalidRequest, match="1 placeholders for 2 pictures"):
        await expanded(two, PICTURE, MediaContent(b"one too many"))
