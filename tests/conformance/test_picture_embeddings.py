"""Embeddings in the place of pictures beside vLLM's own server: equal ids, log-probabilities and usage."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conformance.embedding_chats import embedding_chats, embeds_part, saved, wrong_embeddings
from tests.conformance.picture_chats import drawn_picture, user_message
from tests.conformance.picture_routes import CHAT
from tests.conformance.servers import PLAIN, VllmServer, running_service
from tests.conformance.test_pictures import LIMIT, asked_for, media_counts, post_chat
from tests.lazily import Lazily
from tests.processes import Service
from tests.torchvision import torchvision_environment
from tests.vision_model.model import qwen_vision_model

torch = Lazily("torch")

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]

ARGUMENTS = (*LIMIT, "--enable-mm-embeds")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, httpx.Response | None]:
    """Return what vLLM's server answers by chat; it has ended by then: there is one engine at a time."""
    folder, model, environment = tmp_path_factory.mktemp("stock"), qwen_vision_model(), torchvision_environment()
    server = VllmServer(folder, (*PLAIN, *ARGUMENTS), model, environment)
    try:
        server.wait_ready()
        return {name: CHAT.ask(server.url, messages) for name, messages in embedding_chats(model).items()}
    finally:
        server.stop()


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run tokenwire."""
    folder, environment = tmp_path_factory.mktemp("ours"), torchvision_environment()
    with running_service(folder, PLAIN, ARGUMENTS, qwen_vision_model(), environment) as service:
        yield service


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_replies_to_embeddings_are_vllms(
    theirs: dict[str, httpx.Response | None], ours: Service, streamed: bool
) -> None:
    """In each form, one to three, of several sizes; most get replies of their own, else this would show nothing."""
    differ, replies = {}, set()
    for name, messages in embedding_chats(qwen_vision_model()).items():
        recorded, answered = theirs[name], CHAT.ask(ours.url, messages)
        assert recorded is not None
        assert answered is not None
        wanted = CHAT.reply(recorded)
        found = CHAT.streamed_reply(ours.url, messages) if streamed else CHAT.reply(answered)
        if found.exact() != wanted.exact() or found.logprobs != pytest.approx(wanted.logprobs, abs=1e-4):
            differ[name] = (found, wanted)
        replies.add(tuple(wanted.ids))
    assert not differ
    assert len(replies) > 3


def test_embeddings_of_a_wrong_shape_fail_alone(ours: Service) -> None:
    """They are a 400 that says why, and the engine goes on with text and pictures: a bare one ends by some of them."""
    for reason, embeds in wrong_embeddings().items():
        failed = post_chat(ours.url, asked_for([{"role": "user", "content": [embeds_part(embeds)]}]))
        assert failed.status_code == 400, failed.text
        assert reason in failed.json()["error"]["message"]
    assert post_chat(ours.url, asked_for([user_message(drawn_picture("PNG"), "Still there?")])).status_code == 200


def test_embeddings_are_sent_and_loaded_once(ours: Service) -> None:
    """In a later turn their name is enough, and the worker has what it made of them."""
    embeds = {"image_embeds": saved(torch.full((8, 128), 0.5)), "image_grid_thw": [1, 4, 8]}
    messages = [{"role": "user", "content": [{**embeds_part(embeds), "uuid": "half"}]}]
    first = post_chat(ours.url, asked_for(messages)).json()
    before = media_counts(ours)
    messages = [{"role": "user", "content": [{**embeds_part(None), "uuid": "half"}]}]
    messages += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]}, user_message("And?")]
    second = post_chat(ours.url, asked_for(messages)).json()
    after = media_counts(ours)
    for name in ("puts", "processed"):
        assert after[f"tokenwire_worker_media_{name}_total"] == before[f"tokenwire_worker_media_{name}_total"]
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["prompt_token_ids"][: len(ids)] == ids
