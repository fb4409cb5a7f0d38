"""The routes of TRL's own server."""

from pathlib import Path

import pytest

from tests.coordinator.api.applications import served


async def test_prompts_and_completions_are_ids(tmp_path: Path) -> None:
    """Ranked log-probabilities come with them, by default."""
    async with served(tmp_path) as client:
        body = {"prompts": ["Hi", "Ho"], "max_tokens": 3, "n": 2}
        scored = (await client.post("/generate/", json=body)).json()
        bare = (await client.post("/generate/", json={**body, "logprobs": None})).json()

    assert scored["prompt_ids"] == [[72, 105], [72, 111]]
    assert [len(ids) for ids in scored["completion_ids"]] == [3] * 4
    assert [[len(ranked) for ranked in choice] for choice in scored["logprob_token_ids"]] == [[1] * 3] * 4
    assert (bare["logprobs"], bare["logprob_token_ids"]) == (None, None)


async def test_conversations_are_rendered(tmp_path: Path) -> None:
    """By the model's template."""
    async with served(tmp_path) as client:
        messages = [{"role": "user", "content": "Hi"}]
        made = (await client.post("/chat/", json={"messages": [messages], "max_tokens": 2})).json()
        rendered = (await client.post("/tokenize", json={"messages": messages})).json()

    assert made["prompt_ids"] == [rendered["tokens"]]


@pytest.mark.parametrize("form", ["json", "binary"])
async def test_only_completions_are_scored(tmp_path: Path, form: str) -> None:
    """What comes after the prompt of each sequence."""
    body = {"sequences": [[65, 66, 67], [65, 66]], "prompt_lengths": [1, 1], "top_logprobs": 1, "response_format": form}
    async with served(tmp_path) as client:
        scores = (await client.post("/get_sequence_logprobs/", json=body)).json()

    if form == "binary":
        assert scores["completion_lengths"] == [2, 1]
    else:
        assert [len(positions) for positions in scores["logprobs"]] == [2, 1]
