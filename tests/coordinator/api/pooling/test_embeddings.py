"""POST /v1/embeddings, in front of simulated workers."""

import base64
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import served

WIDTH = 4
TALK = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Two workers of one model that embeds."""
    async with served(tmp_path, workers=2, embedding_width=WIDTH, max_num_seqs=8) as client:
        yield client


async def embed(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    """Return the embeddings of a request."""
    response = await client.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    assert [each["index"] for each in response.json()["data"]] == list(range(len(response.json()["data"])))
    return [each["embedding"] for each in response.json()["data"]]


async def test_inputs_of_every_kind_are_embedded(client: httpx.AsyncClient) -> None:
    """A text, ids, lists of both, and messages have the same vectors alone and together."""
    alone = await embed(client, input="Hi")

    assert len(alone[0]) == WIDTH
    assert await embed(client, input=["Ho", "Hi"]) == await embed(client, input="Ho") + alone
    assert await embed(client, input=[72, 105]) == alone
    assert await embed(client, input=[[72, 105], [72]]) == alone + await embed(client, input=[72])
    chat = await embed(client, messages=TALK)
    assert await embed(client, input=TALK) == chat
    assert await embed(client, input=[TALK, TALK]) == chat * 2 == await embed(client, messages=[TALK, TALK])
    assert await embed(client, messages=TALK, add_generation_prompt=True) != chat


async def test_messages_come_before_input(client: httpx.AsyncClient) -> None:
    """As in vLLM; where there are none, the input counts."""
    chat, text = await embed(client, messages=TALK), await embed(client, input="x")
    for given in ("x", ["x"], [1], [{"role": "user", "content": "another"}]):
        assert await embed(client, input=given, messages=TALK) == chat
    assert await embed(client, input="x", messages=[TALK, TALK]) == chat * 2
    without: list[Any] = [None, [], [[]]]
    for none in without:
        assert await embed(client, input="x", messages=none) == text


async def test_a_batch_beyond_the_workers_is_complete(client: httpx.AsyncClient) -> None:
    """It is sent in parts as there is room for them."""
    texts = [f"text {number}" for number in range(100)]

    together = await embed(client, input=texts)

    assert together[::33] == [(await embed(client, input=text))[0] for text in texts[::33]]


async def test_a_response_is_openais(client: httpx.AsyncClient) -> None:
    """With the tokens of all inputs as its usage."""
    response = await client.post("/v1/embeddings", json={"input": ["ab", "c"]}, headers={"X-Request-Id": "mine"})

    body = response.json()
    assert (body["id"], body["object"], body["model"]) == ("embd-mine", "list", "simulated")
    assert (body["usage"]["prompt_tokens"], body["usage"]["total_tokens"]) == (3, 3)
    assert body["data"][0]["object"] == "embedding"


@pytest.mark.parametrize("endianness", ["native", "big", "little"])
@pytest.mark.parametrize(("dtype", "form"), [("float32", "f"), ("float16", "e")])
async def test_every_encoding_has_the_same_numbers(
    client: httpx.AsyncClient, dtype: str, form: str, endianness: str
) -> None:
    """In base64 and as bytes, in the order and the type that are requested."""
    body = {"input": ["ab", "c"], "embed_dtype": dtype, "endianness": endianness}
    exact = await embed(client, input=["ab", "c"])
    encoded = await embed(client, **body, encoding_format="base64")
    plain = await client.post("/v1/embeddings", json={**body, "encoding_format": "bytes_only"})
    described = await client.post("/v1/embeddings", json={**body, "encoding_format": "bytes"})

    data = b"".join(map(base64.b64decode, encoded))
    assert data == plain.content == described.content
    values = struct.unpack(f"{'>' if endianness == 'big' else '<'}{2 * WIDTH}{form}", data)
    assert values == pytest.approx([number for vector in exact for number in vector], abs=1e-3)
    assert "metadata" not in plain.headers
    metadata = json.loads(described.headers["metadata"])
    size = WIDTH * struct.calcsize(form)
    assert [(each["start"], each["end"], each["shape"]) for each in metadata["data"]] == [
        (0, size, [WIDTH]),
        (size, 2 * size, [WIDTH]),
    ]
    assert metadata["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Either `input` or `messages` must be provided."),
        ({"input": []}, "You must pass at least one prompt"),
        ({"input": [1, "x"]}, "input"),
        ({"input": "x", "dimensions": 2}, "does not support Matryoshka embeddings; dimensions must be unset"),
        ({"input": "x", "dimensions": 2**70}, "dimensions is out of range"),
        ({"input": "x", "normalize": False}, "Parameter `normalize` was removed; use `use_activation` instead."),
        ({"input": "x", "task": "score"}, "`score` task was removed; use `classify` instead."),
        ({"input": "x", "mm_processor_kwargs": {"a": 1}}, "mm_processor_kwargs"),
        ({"input": "x", "truncate_prompt_tokens": 10**6}, "greater than max_model_len"),
        ({"input": "x", "encoding_format": "xml"}, "encoding_format"),
        ({"messages": TALK, "continue_final_message": True, "add_generation_prompt": True}, "Cannot set both"),
        ({"input": "x", "cache_salt": ""}, "cache_salt"),
    ],
)
async def test_bad_requests_are_refused_by_name(client: httpx.AsyncClient, body: dict[str, Any], message: str) -> None:
    """With a 400, mostly in vLLM's words."""
    response = await client.post("/v1/embeddings", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_a_model_that_embeds_generates_nothing(client: httpx.AsyncClient) -> None:
    """Its other routes are not there."""
    for path, body, api in (
        ("/v1/completions", {"prompt": "x"}, "Completions"),
        ("/v1/chat/completions", {"messages": TALK}, "Chat Completions"),
        ("/v1/responses", {"input": "x"}, "Responses"),
        ("/v1/messages", {"model": "simulated", "messages": TALK, "max_tokens": 1}, "Messages"),
    ):
        response = await client.post(path, json=body)
        assert response.status_code == 404
        message = response.json()["error"]["message"]
        assert message == f"The model does not support {api} API: `simulated` is for embed, token_embed."


async def test_a_model_that_generates_embeds_nothing(tmp_path: Path) -> None:
    """Nor has it the route."""
    async with served(tmp_path) as client:
        response = await client.post("/v1/embeddings", json={"input": "x"})

    assert response.status_code == 404
    assert response.json()["error"]["message"] == (
        "The model does not support Embeddings API: `simulated` is for generate."
    )


async def test_adapters_embed_too(client: httpx.AsyncClient) -> None:
    """Under their own names, on every worker."""
    loaded = await client.post("/v1/load_lora_adapter", json={"lora_name": "red", "lora_path": "/red"})

    adapted = await embed(client, model="red", input=["Hi"] * 12)

    assert loaded.status_code == 200
    assert adapted == adapted[:1] * 12
    assert adapted[:1] != await embed(client, input="Hi")
