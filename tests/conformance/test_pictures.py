"""Chats with pictures beside vLLM's own server, on every route: equal ids, log-probabilities and usage."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.conformance.picture_chats import as_part, drawn_picture, picture_chats, user_message
from tests.conformance.picture_routes import CHAT, ROUTES, PictureReply, Route
from tests.conformance.servers import PLAIN, VllmServer, running_service
from tests.lazily import Lazily
from tests.processes import Service, worker_metrics
from tests.torchvision import torchvision_environment
from tests.vision_model.model import qwen_vision_model, vision_model
from tokenwire.v1 import control_pb2, control_pb2_grpc
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME

mm_features = Lazily("vllm.entrypoints.scale_out.token_in_token_out.mm_features")
token_protocol = Lazily("vllm.entrypoints.scale_out.token_in_token_out.protocol")

pytestmark = [pytest.mark.ci, pytest.mark.engine, pytest.mark.timeout(1200)]

LIMIT = ("--limit-mm-per-prompt", '{"image": 3}', "--max-num-seqs", "4")


def asked_for(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a request."""
    base = {"model": EMBEDDED_MODEL_NAME, "temperature": 0, "max_tokens": 8, "return_token_ids": True}
    return {**base, "messages": messages, **fields}


WRONG: dict[str, list[Any]] = {
    "four": [as_part(drawn_picture("JPEG"))] * 4,
    "not base64": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!!"}}],
    "no data for a name": [{"type": "image_url", "image_url": None, "uuid": "nobody"}],
}


def post_chat(url: str, body: dict[str, Any]) -> httpx.Response:
    """Send a request."""
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)


RENDERED = ("two", "three in three messages", "text alone")
"""Chats of which the rendered requests are compared, too."""


def rendered(url: str, name: str) -> httpx.Response:
    """Return a chat's rendered request."""
    body = asked_for(picture_chats()[name])
    return httpx.post(f"{url}/v1/chat/completions/render", json=body, timeout=120)


@dataclass(frozen=True)
class SeeingModel:
    """A model, and what its processes need in their environment."""

    folder: Callable[[], Path]
    environment: Callable[[], dict[str, str]] = dict


MODELS = [
    pytest.param(SeeingModel(vision_model), id="idefics3"),
    pytest.param(SeeingModel(qwen_vision_model, torchvision_environment), id="qwen2.5-vl", marks=pytest.mark.long),
]


@dataclass(frozen=True)
class Recorded:
    """What vLLM's server has answered."""

    replies: dict[tuple[str, str], httpx.Response | None]
    """By route and chat; None: the route has no form for it."""
    errors: dict[str, httpx.Response]
    rendered: dict[str, httpx.Response]
    """By chat."""


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> SeeingModel:
    """Return each of the models."""
    found: SeeingModel = request.param
    return found


@pytest.fixture(scope="module")
def theirs(model: SeeingModel, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return what vLLM's server answers; it has ended by then: there is one engine at a time."""
    folder = tmp_path_factory.mktemp("stock")
    server = VllmServer(folder, (*PLAIN, *LIMIT), model.folder(), model.environment())
    try:
        server.wait_ready()
        replies = {
            (route.path, name): route.ask(server.url, messages)
            for route in ROUTES
            for name, messages in picture_chats().items()
        }
        wrong = {
            name: post_chat(server.url, asked_for([{"role": "user", "content": each}])) for name, each in WRONG.items()
        }
        return Recorded(replies, wrong, {name: rendered(server.url, name) for name in RENDERED})
    finally:
        server.stop()


@pytest.fixture(scope="module")
def ours(theirs: Any, model: SeeingModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run tokenwire."""
    folder = tmp_path_factory.mktemp("ours")
    with running_service(folder, PLAIN, LIMIT, model.folder(), model.environment()) as service:
        yield service


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_replies_to_pictures_are_vllms(theirs: Recorded, ours: Service, route: Route, streamed: bool) -> None:
    """Prompt ids, output ids, log-probabilities and usage, for each place and format; a stream's chunks together."""
    differ = {}
    for name, messages in picture_chats().items():
        recorded = theirs.replies[route.path, name]
        if recorded is None:
            continue
        wanted = route.reply(recorded)
        found = route.streamed_reply(ours.url, messages) if streamed else whole_reply(route, ours.url, messages)
        if found.exact() != wanted.exact() or found.logprobs != pytest.approx(wanted.logprobs, abs=1e-4):
            differ[name] = (found, wanted)
    assert not differ


def whole_reply(route: Route, url: str, messages: list[dict[str, Any]]) -> PictureReply:
    """Return the whole reply to a chat that the route has a form for."""
    response = route.ask(url, messages)
    assert response is not None
    return route.reply(response)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # of what vLLM reads
def test_rendered_requests_are_vllms(theirs: Recorded, ours: Service) -> None:
    """The same ids, places and tensors; names are the pictures' own here."""
    for name in RENDERED:
        wanted, found = theirs.rendered[name].json(), rendered(ours.url, name).json()
        assert found["token_ids"] == wanted["token_ids"], name
        if wanted["features"] is None:
            assert found["features"] is None, name
            continue
        theirs_of, ours_of = (
            token_protocol.MultiModalFeatures.model_validate(body["features"]) for body in (wanted, found)
        )
        assert (ours_of.mm_placeholders, ours_of.mm_metadata) == (theirs_of.mm_placeholders, theirs_of.mm_metadata)
        for mine, other in zip(_tensors(ours_of), _tensors(theirs_of), strict=True):
            assert mine.keys() == other.keys(), name
            assert all((mine[key] == other[key]).all() for key in mine), name


def _tensors(features: Any) -> list[dict[str, Any]]:
    items = mm_features.mm_kwargs_from_features(features)["image"]
    return [{key: element.data for key, element in item.items()} for item in items]


def test_other_pictures_get_other_replies(theirs: Recorded) -> None:
    """Else equal replies would show nothing."""
    recorded = [response for (path, _), response in theirs.replies.items() if path == CHAT.path]
    replies = {tuple(CHAT.reply(response).ids) for response in recorded if response is not None}
    assert len(replies) > len(recorded) // 2


def test_errors_are_vllms(theirs: Recorded, ours: Service) -> None:
    """Status and message."""
    for name, content in WRONG.items():
        found = post_chat(ours.url, asked_for([{"role": "user", "content": content}]))
        wanted = theirs.errors[name]
        assert found.status_code == wanted.status_code == 400, name
        assert found.json()["error"]["message"] in wanted.json()["error"]["message"], name


def test_a_picture_that_comes_again_is_neither_sent_nor_processed_again(ours: Service) -> None:
    """The worker's counts stay what they are when the next turn of a chat has the same picture.

    Its prompt continues from exact ids.
    """
    picture = drawn_picture("PNG", seed=9)
    turns = [user_message(picture, "What is this?")]
    first = post_chat(ours.url, asked_for(turns, temperature=1.0, seed=3)).json()
    before = media_counts(ours)
    turns += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]}, user_message("And now?")]
    second = post_chat(ours.url, asked_for(turns)).json()
    after, seen = media_counts(ours), ("tokenwire_worker_media_expanded_total", "tokenwire_worker_media_reused_total")
    assert {name for name in after if after[name] != before[name]} == set(seen)
    assert [after[name] - before[name] for name in seen] == [1, 1]
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["token_history"]["reused_tokens"] == len(ids)
    assert second["prompt_token_ids"][: len(ids)] == ids
    assert before["tokenwire_worker_media_puts_total"] == before["tokenwire_worker_media_processed_total"] > 0


def media_counts(service: Service) -> dict[str, float]:
    """Return what the worker has counted of media."""
    return worker_metrics(service.addresses[0], "tokenwire_worker_media")


def test_a_placeholder_that_the_model_wrote_takes_no_picture(ours: Service) -> None:
    """The next picture is in its own message, as in the template's prompt; the turn after it is exact again."""
    turns = [user_message(drawn_picture("PNG", seed=7), "Say it.")]
    seen = post_chat(ours.url, asked_for(turns, max_tokens=1)).json()["prompt_token_ids"]
    ((placeholder, _),) = Counter(seen).most_common(1)  # each picture is many of them
    first = post_chat(ours.url, asked_for(turns, allowed_token_ids=[placeholder], max_tokens=2)).json()["choices"][0]
    assert first["token_ids"] == [placeholder] * 2
    turns += [{"role": "assistant", "content": first["message"]["content"]}]
    turns += [user_message("And this?", drawn_picture("PNG", seed=8))]
    rendered_prompt = post_chat(ours.url, asked_for(turns, token_history="template")).json()["prompt_token_ids"]
    second = post_chat(ours.url, asked_for(turns)).json()
    assert (second["prompt_token_ids"], second["token_history"]["reused_tokens"]) == (rendered_prompt, 0)
    turns += [{"role": "assistant", "content": second["choices"][0]["message"]["content"]}, user_message("So?")]
    ids = second["prompt_token_ids"] + second["choices"][0]["token_ids"]
    assert post_chat(ours.url, asked_for(turns)).json()["prompt_token_ids"][: len(ids)] == ids


def test_a_picture_is_seen_again_after_the_weights_were_loaded_anew(ours: Service) -> None:
    """vLLM has forgotten then what it made of it; with the same weights the reply is the same."""
    body = asked_for([user_message(drawn_picture("PNG", seed=6), "What is this?")])
    before = post_chat(ours.url, body).json()["choices"][0]["token_ids"]
    with grpc.insecure_channel(ours.addresses[0]) as channel:
        request = control_pb2.LoadWeightsRequest(path="", reset_prefix_cache=True)
        control_pb2_grpc.ControlStub(channel).LoadWeights(request, timeout=120)

    assert post_chat(ours.url, body).json()["choices"][0]["token_ids"] == before


def test_a_picture_that_cannot_be_decoded_fails_alone(ours: Service) -> None:
    """A picture that cannot be decoded is a 400 in vLLM's words, and the next one is served."""
    whole = drawn_picture("PNG")
    failed = post_chat(ours.url, asked_for([user_message(whole[: len(whole) // 2], "?")]))
    assert failed.status_code == 400
    assert failed.json()["error"]["message"].startswith("Failed to load image: ")
    assert post_chat(ours.url, asked_for([user_message(whole, "?")])).status_code == 200
