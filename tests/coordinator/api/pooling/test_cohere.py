"""POST /v2/embed, in front of simulated workers."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served
from tests.coordinator.pooling.embedding import embedding_model
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.pooling.cohere import CohereEmbedRequest
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.types import ChatPrompt, TextPrompt
from tokenwire.errors import InvalidRequest


async def test_vectors_come_in_every_type(tmp_path: Path) -> None:
    """Numbers, their bytes, and their signs as bits."""
    types = ["float", "base64", "binary", "ubinary"]
    async with served(tmp_path, embedding_width=16) as client:
        body = (await client.post("/v2/embed", json={"texts": ["a", "b"], "embedding_types": types})).json()
        plain = (await client.post("/v2/embed", json={"inputs": [{"content": [{"type": "text", "text": "a"}]}]})).json()

    first = body["embeddings"]["float"][0]
    bits = "".join(f"{byte:08b}" for byte in body["embeddings"]["ubinary"][0])
    assert list(struct.unpack("<16f", base64.b64decode(body["embeddings"]["base64"][0]))) == first
    assert [bit == "1" for bit in bits] == [number >= 0 for number in first]
    assert [each + 128 for each in body["embeddings"]["binary"][1]] == body["embeddings"]["ubinary"][1]
    assert body["texts"] == ["a", "b"]
    assert body["meta"]["billed_units"] == {"input_tokens": 2, "image_tokens": 0}
    assert plain["embeddings"].keys() == {"float"}
    assert "texts" not in plain


async def test_many_vectors_are_encoded_as_they_are_sent(tmp_path: Path) -> None:
    """Others have their turn in between, and the length is not known before."""
    async with served(tmp_path, embedding_width=64) as client:
        body = {"texts": ["a"] * 100, "embedding_types": ["float", "binary"]}
        response = await client.post("/v2/embed", json=body)

    assert "content-length" not in response.headers
    assert [len(vectors) for vectors in response.json()["embeddings"].values()] == [100, 100]


def sent_inputs(has_template: bool, **fields: Any) -> Sequence[Any]:
    """Return the inputs of a request to a model with instructions."""
    model = embedding_model(instructions={"query": "q: ", "none": ""})
    template = model.template if has_template else ChatTemplate(None, {})
    request = CohereEmbedRequest(texts=["one"], **fields)
    return request.to_pooling(replace(model, template=template), RequestHeaders({})).inputs


def test_an_input_type_brings_its_instruction() -> None:
    """As a system message, or before the text where there is no template."""
    assert sent_inputs(False, input_type="query") == [TextPrompt("q: one")]
    assert sent_inputs(False) == sent_inputs(True) == sent_inputs(True, input_type="none") == [TextPrompt("one")]
    (chat,) = sent_inputs(True, input_type="query")
    assert isinstance(chat, ChatPrompt)
    assert [each["role"] for each in chat.messages] == ["system", "user"]
    with pytest.raises(InvalidRequest, match="Supported values: none, query"):
        sent_inputs(True, input_type="document")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Exactly one of texts, images, or inputs"),
        ({"texts": []}, "Exactly one of texts, images, or inputs"),
        ({"texts": ["a"], "inputs": [{"content": []}]}, "Exactly one of texts, images, or inputs"),
        ({"images": ["data:"]}, "images"),
        ({"inputs": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "inputs"),
        ({"inputs": [{}]}, "inputs"),
        ({"texts": ["a"], "input_type": "query"}, "does not define any input_type task instructions"),
        ({"texts": ["abcd"], "truncate": "NONE", "max_tokens": 2}, "Input of 4 tokens exceeds max_tokens=2"),
        ({"texts": ["a"], "embedding_types": ["binary"]}, "multiple of 8"),
        ({"texts": ["a"], "max_tokens": -2}, "max_tokens"),
    ],
)
async def test_bad_requests_of_cohere_are_refused(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    """By name, mostly in vLLM's words."""
    async with served(tmp_path, embedding_width=4) as client:
        response = await client.post("/v2/embed", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_long_texts_are_truncated_by_themselves(tmp_path: Path) -> None:
    """At their end, or at their beginning."""
    async with served(tmp_path, embedding_width=4) as client:
        vectors = []
        for fields in ({"truncate": "START"}, {"truncate": "END"}, {}):
            response = await client.post("/v2/embed", json={"texts": ["abcd"], "max_tokens": 2, **fields})
            vectors.append(response.json()["embeddings"]["float"][0])
        ends = (await client.post("/v2/embed", json={"texts": ["cd", "ab"]})).json()["embeddings"]["float"]

    assert vectors == [*ends, ends[1]]
