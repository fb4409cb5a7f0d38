"""POST /score and /rerank, in front of simulated workers."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.coordinator.api.applications import served

DOCUMENTS = ["red", "green", "blue"]
NAMES = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))


async def ranking(client: httpx.AsyncClient, path: str = "/rerank", **body: Any) -> Any:
    """Return the results of a request."""
    response = await client.post(path, json={"query": "red", "documents": DOCUMENTS, **body})
    assert response.status_code == 200, response.text
    return response.json()["results"]


async def test_embeddings_rank_documents(tmp_path: Path) -> None:
    """The equal text comes first; all names of the routes and of their fields mean the same."""
    async with served(tmp_path, embedding_width=16) as client:
        results = await ranking(client)
        score = {}
        for path in ("/score", "/v1/score"):
            for first, second in NAMES:
                response = await client.post(path, json={first: "red", second: DOCUMENTS})
                score[path, second] = [each["score"] for each in response.json()["data"]]
                assert response.json()["usage"]["prompt_tokens"] == 3 + 3 + 5 + 4
        pairs = (await client.post("/score", json={"data_1": DOCUMENTS, "data_2": DOCUMENTS})).json()["data"]

        assert results[0]["index"] == 0
        assert results[0]["relevance_score"] == pytest.approx(1)
        assert [each["document"]["text"] for each in results] == [DOCUMENTS[each["index"]] for each in results]
        assert all(each == next(iter(score.values())) for each in score.values())
        assert {each["index"]: each["relevance_score"] for each in results} == dict(enumerate(score["/score", "items"]))
        assert [each["score"] for each in pairs] == pytest.approx([1, 1, 1])
        for path in ("/v1/rerank", "/v2/rerank"):
            assert await ranking(client, path, top_n=2) == results[:2]
        assert (await ranking(client, query="redder", max_tokens_per_query=3))[0]["relevance_score"] == pytest.approx(1)


async def test_names_of_texts_go_together(tmp_path: Path) -> None:
    """One of a pair with one of another is refused, as by vLLM."""
    async with served(tmp_path, embedding_width=16) as client:
        response = await client.post("/score", json={"text_1": "red", "documents": DOCUMENTS})

        assert response.status_code == 400
        assert "not as documents and text_1" in response.json()["error"]["message"]


async def test_fields_that_other_routes_lost_have_no_effect(tmp_path: Path) -> None:
    """These never had them, and ignore them as vLLM does."""
    async with served(tmp_path, embedding_width=16) as client:
        assert await ranking(client, normalize=True, task="score") == await ranking(client)


@pytest.mark.parametrize(("width", "task"), [(16, "embed"), (1, "classify")])
async def test_fields_of_templates_for_pairs_have_no_effect(tmp_path: Path, width: int, task: str) -> None:
    """No server has such a template by itself, and vLLM ignores them then."""
    async with served(tmp_path, embedding_width=width, pooling_task=task) as client:
        plain = await ranking(client)
        assert await ranking(client, instruction="Be strict.", chat_template_kwargs={"instruction": "x"}) == plain
        assert await ranking(client, padding="do_not_pad") == plain


async def test_a_cross_encoder_ranks_documents(tmp_path: Path) -> None:
    """By what it makes of both texts."""
    async with served(tmp_path, embedding_width=1, pooling_task="classify") as client:
        results = await ranking(client)

    assert sorted((each["relevance_score"] for each in results), reverse=True) == [
        each["relevance_score"] for each in results
    ]
    assert {each["index"] for each in results} == {0, 1, 2}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"queries": ["a", "b"], "documents": ["a", "b", "c"]}, "Input lengths must be either 1:1, 1:N or N:N"),
        ({"queries": [], "documents": ["a"]}, "At least one text element must be given"),
        ({"queries": "a", "documents": []}, "At least one text_pair element must be given"),
        ({"queries": "a", "documents": [{"content": []}]}, "MultiModalParam is not supported"),
        ({"queries": "a"}, "documents"),
        ({"queries": "a", "documents": "b", "instruction": ["x"]}, "instruction"),
        ({"queries": "a", "documents": "b", "chat_template_kwargs": "a"}, "chat_template_kwargs"),
        ({"queries": "a", "documents": "b", "max_tokens_per_doc": -1}, "must be a non-negative integer"),
    ],
)
async def test_bad_requests_are_refused(tmp_path: Path, body: dict[str, Any], message: str) -> None:
    """By name, mostly in vLLM's words."""
    async with served(tmp_path, embedding_width=4) as client:
        response = await client.post("/score", json=body)

    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


async def test_a_model_with_several_classes_scores_nothing(tmp_path: Path) -> None:
    """As in vLLM."""
    async with served(tmp_path, embedding_width=3, pooling_task="classify") as client:
        response = await client.post("/rerank", json={"query": "a", "documents": ["b"]})

    assert response.status_code == 404
