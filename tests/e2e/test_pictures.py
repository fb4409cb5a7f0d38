"""Pictures in chats, with real processes and simulated engines: replies, usage, limits, and what is refused."""

import base64
import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.media import pictures
from tests.processes import Service, coordinator, running, simulated_service, wait_routable

IMAGE_TOKENS = 70
WORKER = ("--sim-image-tokens", str(IMAGE_TOKENS), "--sim-step-ms", "5")
COORDINATOR = (
    *("--enable-prompt-tokens-details", "--enable-debug-headers", "--enable-trajectories"),
    *("--max-media-mb", "1", "--media-fetch-timeout", "2"),
)
CAT, DOG = pictures.png(20, 10, 1), pictures.png(20, 10, 2)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a coordinator and a worker that takes pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    with simulated_service(folder, *WORKER, coordinator_options=COORDINATOR) as running:
        yield running


def picture_part(data: bytes | None, **fields: Any) -> dict[str, Any]:
    """Return a part of a message with a picture."""
    url = None if data is None else {"url": "data:image/png;base64," + base64.b64encode(data).decode()}
    return {"type": "image_url", "image_url": url, **fields}


def picture_request(*parts: Any, **fields: Any) -> dict[str, Any]:
    """Return a chat request with one message."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    base = {"model": "simulated", "temperature": 0, "max_tokens": 20, "return_token_ids": True}
    return {**base, "messages": [{"role": "user", "content": content}], **fields}


def completed(service: Service, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
    """Return a successful response."""
    response = httpx.post(service.url + path, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_reply_depends_on_the_picture_and_usage_has_its_tokens(service: Service) -> None:
    """Prompt ids are those that the engine sees; another picture is another prompt."""
    cat, again, dog = (completed(service, picture_request("What?", picture_part(each))) for each in (CAT, CAT, DOG))
    assert cat["choices"][0]["token_ids"] == again["choices"][0]["token_ids"] != dog["choices"][0]["token_ids"]
    assert cat["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": IMAGE_TOKENS}
    assert cat["usage"]["prompt_tokens"] == len(cat["prompt_token_ids"])
    both = completed(service, picture_request(picture_part(CAT), "and", picture_part(DOG)))
    assert both["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 2 * IMAGE_TOKENS}


def test_a_session_with_pictures_is_recorded_with_their_digests(service: Service) -> None:
    """Its messages are those of the client, without the bytes; a turn whose beginning differs says so."""
    headers = {"X-Session-Id": "seen"}
    replies = []
    for picture in (CAT, DOG):
        body = picture_request("What?", picture_part(picture))
        replies.append(httpx.post(f"{service.url}/v1/chat/completions", json=body, headers=headers, timeout=60))

    graph = httpx.get(f"{service.url}/sessions/seen/trajectory").json()

    assert [node["messages"][0]["content"] for node in graph["nodes"]] == [
        [{"type": "text", "text": "What?"}, {"type": "image", "sha256": hashlib.sha256(each).hexdigest()}]
        for each in (CAT, DOG)
    ]
    assert replies[1].headers["X-Tokenwire-Prefix"].startswith("cause=branch; tokens=0; message=0; text=")


def test_a_streamed_reply_is_the_whole_one(service: Service) -> None:
    """Text and usage are equal."""
    body = picture_request("What?", picture_part(CAT), return_token_ids=False)
    whole = completed(service, body)
    text, usage = "", None
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    with httpx.stream("POST", f"{service.url}/v1/chat/completions", json=streamed, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                chunk = httpx.Response(200, content=line.removeprefix("data: ")).json()
                usage = chunk.get("usage") or usage
                text += "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert usage is not None
    assert usage["prompt_tokens_details"]["multimodal_tokens"] == {"image": IMAGE_TOKENS}


def test_tokenize_returns_the_ids_that_the_engine_sees(service: Service) -> None:
    """They are those of the chat's prompt."""
    body = picture_request("What?", picture_part(CAT))
    tokens = completed(service, {"messages": body["messages"]}, "/tokenize")["tokens"]
    assert tokens == completed(service, body)["prompt_token_ids"]


def test_a_later_turn_continues_from_exact_ids(service: Service) -> None:
    """With more pictures after it; another picture in the first turn is another conversation."""
    first = completed(service, picture_request("What?", picture_part(CAT), temperature=1.0))
    ids = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
    reply = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
    for data, reused in ((CAT, len(ids)), (DOG, 0)):
        body = picture_request("What?", picture_part(data))
        body["messages"] += [reply, {"role": "user", "content": [{"type": "text", "text": "And?"}, picture_part(DOG)]}]
        second = completed(service, body)
        assert second["token_history"]["reused_tokens"] == reused
        assert second["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 2 * IMAGE_TOKENS}
        assert not reused or second["prompt_token_ids"][:reused] == ids


def test_a_uuid_stands_for_a_picture_that_came_before(service: Service) -> None:
    """The bytes need not come again; a name that nobody gave is a 400."""
    first = completed(service, picture_request("What?", picture_part(CAT, uuid="cat")))
    second = completed(service, picture_request("What?", picture_part(None, uuid="cat")))
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]


def test_responses_and_messages_take_pictures(service: Service) -> None:
    """Their prompts are those of the chat: as long, and another picture is another reply."""
    chat = completed(service, picture_request(picture_part(CAT), "What?"))
    replies, tokens = [], chat["usage"]["prompt_tokens"]
    for data in (CAT, DOG):
        encoded = base64.b64encode(data).decode()
        image = {"type": "input_image", "image_url": "data:image/png;base64," + encoded}
        item = {"role": "user", "content": [image, {"type": "input_text", "text": "What?"}]}
        response = completed(service, {"input": [item], "max_output_tokens": 20, "temperature": 0}, "/v1/responses")
        assert response["usage"]["input_tokens"] == tokens
        source = {"type": "base64", "media_type": "image/png", "data": encoded}
        blocks = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
        body = {"model": "simulated", "max_tokens": 20, "temperature": 0}
        message = completed(service, {**body, "messages": [{"role": "user", "content": blocks}]}, "/v1/messages")
        assert sum(message["usage"][f"{each}input_tokens"] for each in ("", "cache_read_")) == tokens
        replies.append((response["output"][0]["content"][0]["text"], message["content"][0]["text"]))
    assert replies[0] == (chat["choices"][0]["message"]["content"],) * 2
    assert replies[1] != replies[0]


def test_the_screenshot_of_a_tool_is_seen(service: Service) -> None:
    """Its tokens are in the prompt of the next turn."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}]}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(CAT).decode()}
    tokens = []
    for pictures_of_it in ([], [{"type": "image", "source": source}]):
        messages = [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{**result, "content": [*result["content"], *pictures_of_it]}]},
        ]
        body = {"model": "simulated", "max_tokens": 5, "messages": messages}
        tokens.append(completed(service, body, "/v1/messages/count_tokens")["input_tokens"])
    assert tokens[1] - tokens[0] > IMAGE_TOKENS


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (picture_request(picture_part(None, uuid="unknown")), 400, "Cache miss for image at index 0"),
        (picture_request(picture_part(b"no picture")), 400, "Failed to load image: cannot identify image file"),
        (picture_request(picture_part(pictures.huge_png(50_000, 50_000))), 400, "50000x50000"),
        (picture_request(picture_part(CAT + bytes(2**20))), 400, "--max-media-mb"),
        (picture_request(*[picture_part(CAT)] * 17), 400, "At most 16 image(s) may be provided in one prompt."),
        (picture_request({"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}), 400, "data or https"),
        (picture_request({"type": "image_url", "image_url": {"url": "https://10.0.0.1/"}}), 400, "not public"),
        (picture_request({"type": "image_url", "image_url": {"url": "https://[::1]/"}}), 400, "not public"),
        (picture_request({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), 400, "'file'"),
        (picture_request({"type": "image_url", "image_url": {"url": "https://name.invalid/"}}), 422, "not be fetched"),
        (picture_request({"type": "input_audio", "input_audio": {}}), 400, "'input_audio', which this server"),
        (picture_request({"type": "image_embeds", "image_embeds": "eA=="}), 400, "torch.save or numpy.save"),
        (picture_request("a", mm_processor_kwargs={"a": 1}), 400, "--trust-request-mm-kwargs"),
        (picture_request("a", media_io_kwargs={"image": {"a": 1}}), 400, "--trust-request-mm-kwargs"),
        (picture_request(picture_part(CAT), truncate_prompt_tokens=5), 400, "cannot be truncated"),
        (picture_request(picture_part(CAT), max_tokens=40_000), 400, "max_model_len"),
    ],
)
def test_what_cannot_be_served_is_an_error_that_says_why(
    service: Service, body: dict[str, Any], status: int, message: str
) -> None:
    """Before any worker has heard of it."""
    response = httpx.post(f"{service.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == status, response.text
    assert message in response.json()["error"]["message"]


def test_there_is_no_audio(service: Service) -> None:
    """A client hears that at once, by the name of what it sent; the routes of transcriptions do not exist."""
    for part in ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, {"type": "audio_url"}):
        response = httpx.post(f"{service.url}/v1/chat/completions", json=picture_request(part), timeout=60)
        assert response.status_code == 400
        assert f"'{part['type']}', which this server does not take" in response.json()["error"]["message"]
    spoken = picture_request("x", audio={"voice": "alloy", "format": "wav"})
    refused = httpx.post(f"{service.url}/v1/chat/completions", json=spoken, timeout=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "audio")
    for route in ("transcriptions", "translations"):
        sent = httpx.post(f"{service.url}/v1/audio/{route}", files={"file": b"hi"}, timeout=60)
        assert sent.status_code == 404


def test_ids_of_a_prompt_cannot_stand_for_its_pictures(service: Service) -> None:
    """The engine would see none: a 400 instead of a wrong reply."""
    body = picture_request(picture_part(CAT), tokens=[65, 66])
    response = httpx.post(f"{service.url}/v1/chat/completions/tokens", json=body, timeout=60)
    assert response.status_code == 400
    assert "messages[0].content[0] is a picture" in response.json()["error"]["message"]


def test_a_rendered_request_has_the_ids_names_and_places_of_its_pictures(service: Service) -> None:
    """The ids are those that the engine sees; a picture has one name wherever it is; text alone has no features."""
    chat = picture_request(picture_part(CAT), "and", picture_part(DOG), picture_part(CAT), return_token_offsets=True)
    token_ids = completed(service, chat)["prompt_token_ids"]
    rendered = completed(service, chat, "/v1/chat/completions/render")
    assert (rendered["token_ids"], rendered["token_offsets"]) == (token_ids, None)
    assert rendered["sampling_params"]["max_tokens"] == chat["max_tokens"]
    features = rendered["features"]
    first, second, third = features["mm_hashes"]["image"]
    assert first == third != second
    places = [(each["offset"], each["length"]) for each in features["mm_placeholders"]["image"]]
    assert [length for _, length in places] == [IMAGE_TOKENS] * 3
    ids_of = [token_ids[offset : offset + IMAGE_TOKENS] for offset, _ in places]
    assert ids_of[0] == ids_of[2] != ids_of[1]
    assert completed(service, picture_request("text"), "/v1/chat/completions/render")["features"] is None


def test_a_rendered_message_is_the_rendered_chat(service: Service) -> None:
    """Anthropic's format has pictures, too."""
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(CAT).decode()}
    blocks = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    body = {"model": "simulated", "max_tokens": 20, "messages": [{"role": "user", "content": blocks}]}
    message = completed(service, {**body, "mm_payload": "none"}, "/v1/messages/render")
    chat = completed(service, picture_request(picture_part(CAT), "What?"), "/v1/chat/completions/render")
    for name in ("token_ids", "features"):
        assert message[name] == chat[name]


def test_a_request_that_was_rendered_elsewhere_brings_no_pictures(service: Service) -> None:
    """Tensors come from servers that a client trusts, not from clients: a 400 names the field."""
    rendered = completed(service, picture_request(picture_part(CAT)), "/v1/chat/completions/render")
    response = httpx.post(f"{service.url}/inference/v1/generate", json=rendered, timeout=60)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "features"


def test_a_reply_to_a_picture_is_derendered(service: Service) -> None:
    """The picture in the original request is not looked at: it need not exist any more."""
    chat = picture_request(picture_part(CAT), "What?")
    expected = completed(service, chat)
    reply = {"choices": [{"index": 0, "token_ids": expected["choices"][0]["token_ids"], "finish_reason": "length"}]}
    gone = picture_request({"type": "image_url", "image_url": {"url": "https://name.invalid/"}}, "What?")
    body = {"generate_response": reply, "prompt_token_ids": expected["prompt_token_ids"], "chat_request": gone}
    derendered = completed(service, body, "/v1/chat/completions/derender")
    assert derendered["choices"][0]["message"]["content"] == expected["choices"][0]["message"]["content"]


def test_a_model_that_takes_text_only_says_so(tmp_path: Path) -> None:
    """Every kind of picture is a 400 that names it."""
    with simulated_service(tmp_path) as service:
        for part in (picture_part(CAT), {"type": "input_image", "image_url": "https://example.org/"}):
            response = httpx.post(f"{service.url}/v1/chat/completions", json=picture_request(part))
            assert response.status_code == 400
            assert "this model takes text only" in response.json()["error"]["message"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a coordinator and two workers that take pictures, of which one takes embeddings, too."""
    folder = tmp_path_factory.mktemp("embeddings")
    addresses = [f"unix:{folder}/{number}.sock" for number in range(2)]
    with ExitStack() as stack:
        for address, embeds in zip(addresses, ((), ("--sim-image-embeds",)), strict=True):
            command = ["worker", "--engine", "sim", "--listen", address, *WORKER, *embeds]
            worker = stack.enter_context(running(command, folder, f"worker-{len(embeds)}"))
            worker.wait_for(r"ready: .* on (\S+)", 60)
        process, url = stack.enter_context(coordinator(folder, addresses, *COORDINATOR))
        wait_routable(url, 2)
        yield Service(process, url, [], addresses)


def test_embeddings_go_to_workers_that_take_them(service: Service, mixed: Service) -> None:
    """In each form, by their name later, and counted as a picture; without such a worker it is vLLM's 400."""
    tensor = base64.b64encode(b"PK\x03\x04 as torch.save writes it").decode()
    for embeds in (tensor, {"image_embeds": tensor, "image_grid_thw": [1, 2, 2]}):
        part = {"type": "image_embeds", "image_embeds": embeds, "uuid": "cat"}
        first = completed(mixed, picture_request("What?", part))
        assert first["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": IMAGE_TOKENS}
        again = {"type": "image_embeds", "image_embeds": None, "uuid": "cat"}
        assert completed(mixed, picture_request("What?", again))["prompt_token_ids"] == first["prompt_token_ids"]
        refused = httpx.post(f"{service.url}/v1/chat/completions", json=picture_request(part), timeout=60)
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "You must set `--enable-mm-embeds` to input `image_embeds`"
    both = httpx.post(f"{mixed.url}/v1/chat/completions", json=picture_request(part, picture_part(CAT)), timeout=60)
    assert (both.status_code, both.json()["error"]["message"]) == (
        400,
        "Mixing raw image and embedding inputs is not allowed",
    )
