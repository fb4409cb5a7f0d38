"""POST /pooling and /classify, in front of simulated workers."""

from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served


async def test_inputs_are_classified(tmp_path: Path) -> None:
    """With the probabilities of all classes, and the name of the likeliest."""
    async with served(tmp_path, embedding_width=3, pooling_task="classify") as client:
        response = await client.post("/classify", json={"input": ["a", "b"]})
        pooled = await client.post("/pooling", json={"input": ["a", "b"]})

    data = response.json()["data"]
    for each in data:
        assert sum(each["probs"]) == pytest.approx(1)
        assert each["label"] == f"class {each['probs'].index(max(each['probs']))}"
        assert each["num_classes"] == 3
    assert [each["data"] for each in pooled.json()["data"]] == [each["probs"] for each in data]
    assert response.json()["usage"]["prompt_tokens"] == 2


async def test_inputs_are_pooled_by_the_models_task(tmp_path: Path) -> None:
    """In every encoding."""
    async with served(tmp_path, embedding_width=4) as client:
        body: dict[str, Any] = {"input": "a", "task": "embed"}
        pooled = (await client.post("/pooling", json=body)).json()["data"]
        embedded = (await client.post("/v1/embeddings", json={"input": "a"})).json()["data"]
        plain = await client.post("/pooling", json={**body, "encoding_format": "bytes_only"})

    assert pooled == [{"index": 0, "object": "pooling", "data": embedded[0]["embedding"]}]
    assert len(plain.content) == 16


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/pooling", {"input": "a", "dimensions": 2}, 400, "dimensions is currently not supported"),
        ("/pooling", {"input": "a", "task": "token_embed"}, 400, "--pooler-config.task token_embed"),
        ("/pooling", {"input": "a", "task": "classify"}, 400, "Unsupported task: 'classify'"),
        ("/pooling", {"data": {"a": 1}}, 400, "No IOProcessor plugin installed"),
        ("/classify", {"input": "a"}, 404, "does not support Classification API"),
    ],
)
async def test_what_a_model_is_not_for_is_refused(
    tmp_path: Path, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    """In vLLM's words."""
    async with served(tmp_path, embedding_width=4) as client:
        response = await client.post(path, json=body)

    assert response.status_code == status
    assert message in response.json()["error"]["message"]
