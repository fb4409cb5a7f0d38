"""Completion requests."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.coordinator.api.applications import served
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import RequestFields
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.completions import CompletionRequest
from tokenwire.coordinator.types import Prompt, TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest


@pytest.mark.parametrize(
    ("model", "nullable"),
    [(ChatCompletionRequest, {"n": True, "echo": False}), (CompletionRequest, {"n": False, "echo": True})],
)
def test_null_is_accepted_as_in_vllm(model: type[RequestFields], nullable: dict[str, bool]) -> None:
    """This differs from route to route; a request id is never null."""
    for name, takes in {**nullable, "request_id": False, "session_id": True}.items():
        given: dict[str, Any] = {"messages": [], name: None}
        if takes:
            model.model_validate(given)
            continue
        with pytest.raises(ValidationError, match=name):
            model.model_validate(given)


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", [TextPrompt("a")]),
        ([1, 2], [TokenPrompt([1, 2])]),
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([[1], [2]], [TokenPrompt([1]), TokenPrompt([2])]),
    ],
)
def test_a_prompt_has_any_of_four_forms(prompt: Any, prompts: list[Prompt]) -> None:
    """Text or ids, one or many."""
    assert CompletionRequest(prompt=prompt).prompts() == prompts


@pytest.mark.parametrize("prompt", [None, "", []])
def test_a_prompt_is_required(prompt: Any) -> None:
    """Empty ones count as absent."""
    with pytest.raises(InvalidRequest) as raised:
        CompletionRequest(prompt=prompt).prompts()

    assert raised.value.param == "prompt"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": -2}, "logprobs"),
        ({"logprob_token_ids": [1]}, "logprob_token_ids"),
        ({"logprob_token_ids": [1], "logprobs": 1, "echo": True, "max_tokens": 0}, "logprob_token_ids"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_fields_are_checked_against_each_other(fields: dict[str, Any], param: str) -> None:
    """As in vLLM."""
    with pytest.raises(InvalidRequest) as raised:
        CompletionRequest(prompt="a", **fields).check()

    assert raised.value.param == param


def test_absent_max_tokens_are_sixteen() -> None:
    """OpenAI's default; null too. An echo of no tokens generates one, which is not returned."""
    scored = CompletionRequest(prompt="a", echo=True, max_tokens=0, logprobs=2)

    assert CompletionRequest.model_validate({"prompt": "a", "max_tokens": None}).max_tokens == 16
    sampling = scored.to_generation(RequestHeaders({})).sampling
    assert (scored.scores_only, sampling.max_tokens, sampling.prompt_logprobs) == (True, 1, 2)


async def test_a_stream_joins_to_the_full_completion(tmp_path: Path) -> None:
    """For every prompt, with its echo."""
    body = {"prompt": ["Hi", "Ho"], "max_tokens": 4, "temperature": 0, "echo": True}
    async with served(tmp_path) as client:
        full = (await client.post("/v1/completions", json=body)).json()
        stream = await client.post("/v1/completions", json={**body, "stream": True})

    texts = ["", ""]
    for event in stream.text.split("\n\n")[:-2]:
        (chunk,) = json.loads(event.removeprefix("data: "))["choices"]
        texts[chunk["index"]] += chunk["text"]
    assert texts == [choice["text"] for choice in full["choices"]]
    assert [text[:2] for text in texts] == ["Hi", "Ho"]
    assert full["usage"]["completion_tokens"] == 8
