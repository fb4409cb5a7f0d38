"""Chats with pictures beside vLLM's own server: equal ids, log-probabilities and usage, whole and streamed."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from tests.conformance.servers import PLAIN, VllmServer, running_service
from tests.lazily import Lazily
from tests.processes import Service
from tests.vision_model.model import vision_model
from tokenwire.v1 import control_pb2, control_pb2_grpc
from tokenwire.worker.vllm_engine.embedded_model import EMBEDDED_MODEL_NAME

images = Lazily("PIL.Image")
draws = Lazily("PIL.ImageDraw")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

LIMIT = ("--limit-mm-per-prompt", '{"image": 3}', "--max-num-seqs", "4")


def drawn_picture(
    kind: str, mode: str = "RGB", size: tuple[int, int] = (300, 200), seed: int = 1, **options: Any
) -> bytes:
    """Return a picture of a few shapes, as a file of a kind."""
    picture = images.new("RGBA", size, (seed * 40 % 255, 200, 90, 120))
    pen = draws.Draw(picture)
    for number in range(6):
        corner = (number * 37 * seed) % size[0], (number * 23 * seed) % size[1]
        pen.ellipse((*corner, corner[0] + 60, corner[1] + 40), fill=(number * 40, 255 - number * 30, seed * 20 % 255))
    target = io.BytesIO()
    picture.convert(mode).save(target, kind, **options)
    return target.getvalue()


def rotated() -> bytes:
    """Return a picture that says that it lies on its side."""
    exif = images.Exif()
    exif[0x0112] = 6
    return drawn_picture("JPEG", exif=exif)


def as_part(data: bytes) -> dict[str, Any]:
    """Return a picture as a part of a message."""
    return {"type": "image_url", "image_url": {"url": "data:image/x;base64," + base64.b64encode(data).decode()}}


def user_message(*parts: str | bytes) -> dict[str, Any]:
    """Return a message of texts and pictures."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else as_part(part) for part in parts]
    return {"role": "user", "content": content}


def picture_chats() -> dict[str, list[dict[str, Any]]]:
    """Return chats by name: one to three pictures in every place and format."""
    jpeg, png = drawn_picture("JPEG"), drawn_picture("PNG", "RGBA", seed=2)
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    return {
        "jpeg before text": [user_message(jpeg, "What is this?")],
        "png with transparency behind text": [user_message("What is this?", png)],
        "gray between texts": [user_message("This ", drawn_picture("PNG", "L"), " is what?")],
        "palette": [user_message(drawn_picture("GIF", "P", seed=3), "?")],
        "webp": [user_message(drawn_picture("WEBP", seed=4), "?")],
        "bmp": [user_message(drawn_picture("BMP", size=(64, 48)), "?")],
        "rotated by exif": [user_message(rotated(), "?")],
        "tall": [user_message(drawn_picture("PNG", size=(60, 500)), "?")],
        "two": [user_message(jpeg, "and", png, "differ?")],
        "twice the same": [user_message(jpeg, jpeg, "Same?")],
        "three in three messages": [
            user_message(jpeg, "one"),
            {"role": "assistant", "content": "Yes."},
            user_message("two", png),
            {"role": "assistant", "content": "No."},
            user_message(drawn_picture("JPEG", seed=5), "three"),
        ],
        "in a system message": [
            {"role": "system", "content": user_message("Be like", jpeg)["content"]},
            user_message("Who?"),
        ],
        "in the result of a tool": [
            *asked,
            {"role": "tool", "tool_call_id": "1", "content": user_message(png)["content"]},
        ],
        "text alone": [user_message("No picture.")],
    }


def asked_for(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a request."""
    base = {"model": EMBEDDED_MODEL_NAME, "temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
    return {**base, "return_token_ids": True, "messages": messages, **fields}


WRONG: dict[str, list[Any]] = {
    "four": [as_part(drawn_picture("JPEG"))] * 4,
    "not base64": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!!"}}],
    "no data for a name": [{"type": "image_url", "image_url": None, "uuid": "nobody"}],
}


def post_chat(url: str, body: dict[str, Any]) -> httpx.Response:
    """Send a request."""
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, httpx.Response]:
    """Return the responses of vLLM's server, which has ended by then: there is one engine at a time."""
    server = VllmServer(tmp_path_factory.mktemp("stock"), (*PLAIN, *LIMIT), vision_model())
    try:
        server.wait_ready()
        responses = {name: post_chat(server.url, asked_for(messages)) for name, messages in picture_chats().items()}
        wrong = {
            name: post_chat(server.url, asked_for([{"role": "user", "content": each}])) for name, each in WRONG.items()
        }
        return responses | wrong
    finally:
        server.stop()


@pytest.fixture(scope="module")
def ours(theirs: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run tokenwire."""
    with running_service(tmp_path_factory.mktemp("ours"), PLAIN, LIMIT, vision_model()) as service:
        yield service


def known(body: Any) -> tuple[Any, ...]:
    """Return what has to be equal."""
    choice = body["choices"][0]
    return body["prompt_token_ids"], choice["token_ids"], choice["message"]["content"], choice["finish_reason"]


def test_replies_to_pictures_are_vllms(theirs: dict[str, httpx.Response], ours: Service) -> None:
    """Prompt ids, output ids, log-probabilities and usage, for each place and format."""
    for name, messages in picture_chats().items():
        wanted, found = theirs[name].json(), post_chat(ours.url, asked_for(messages)).json()
        assert known(found) == known(wanted), name
        scores = [[each["logprob"] for each in body["choices"][0]["logprobs"]["content"]] for body in (found, wanted)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), name
        details = [body["usage"].pop("prompt_tokens_details") for body in (found, wanted)]
        assert found["usage"] == wanted["usage"], name
        assert details[0]["multimodal_tokens"] == details[1]["multimodal_tokens"], name


def test_streamed_replies_are_the_whole_ones(theirs: dict[str, httpx.Response], ours: Service) -> None:
    """The chunks of a stream together are vLLM's whole reply."""
    body = asked_for(picture_chats()["two"], stream=True)
    text = ""
    ids: list[int] = []
    with httpx.stream("POST", f"{ours.url}/v1/chat/completions", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line.removeprefix("data: "))["choices"]:
                    text += choice["delta"].get("content") or ""
                    ids += choice.get("token_ids") or []
    choice = theirs["two"].json()["choices"][0]
    assert (text, ids) == (choice["message"]["content"], choice["token_ids"])


def test_errors_are_vllms(theirs: dict[str, httpx.Response], ours: Service) -> None:
    """Status and message."""
    for name, content in WRONG.items():
        found = post_chat(ours.url, asked_for([{"role": "user", "content": content}]))
        assert found.status_code == theirs[name].status_code == 400, name
        assert found.json()["error"]["message"] in theirs[name].json()["error"]["message"], name


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
    assert media_counts(ours) == before
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    assert second["token_history"]["reused_tokens"] == len(ids)
    assert second["prompt_token_ids"][: len(ids)] == ids
    assert before["tokenwire_worker_media_puts_total"] == before["tokenwire_worker_media_processed_total"] > 0


def media_counts(service: Service) -> dict[str, float]:
    """Return what the worker has counted of media."""
    with grpc.insecure_channel(service.addresses[0]) as channel:
        text = control_pb2_grpc.ControlStub(channel).GetMetrics(control_pb2.GetMetricsRequest(), timeout=60).text
    found = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("tokenwire_worker_media")]
    return {name.partition("{")[0]: float(value) for name, value in found}


def test_a_picture_that_cannot_be_decoded_fails_alone(ours: Service) -> None:
    """A picture that cannot be decoded is a 400 in vLLM's words, and the next one is served."""
    whole = drawn_picture("PNG")
    failed = post_chat(ours.url, asked_for([user_message(whole[: len(whole) // 2], "?")]))
    assert failed.status_code == 400
    assert failed.json()["error"]["message"].startswith("Failed to load image: ")
    assert post_chat(ours.url, asked_for([user_message(whole, "?")])).status_code == 200
