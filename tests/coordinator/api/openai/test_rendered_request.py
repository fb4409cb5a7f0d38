"""Prepared requests as vLLM's GenerateRequest."""

from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.api.applications import served

PROMPT = {"prompt": "Zürich", "temperature": 0.5}


async def rendered_sampling(folder: Path, **fields: Any) -> dict[str, Any]:
    """Return the sampling parameters of a rendered completion."""
    async with served(folder) as client:
        response = await client.post("/v1/completions/render", json={**PROMPT, **fields})
    assert response.status_code == 200, response.text
    params: dict[str, Any] = response.json()[0]["sampling_params"]
    return params


async def test_defaults_are_those_of_the_route(tmp_path: Path) -> None:
    """The maximum of tokens is there too, although it is vLLM's: without it, a server takes the rest of the context."""
    params = await rendered_sampling(tmp_path)

    assert params == {
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 0.5,
        "top_p": 1.0, "min_p": 0.0, "stop": [], "stop_token_ids": [], "max_tokens": 16, "bad_words": [],
        "output_kind": 2, "skip_clone": True, "skip_reading_prefix_cache": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 0.001, "top_k": 3}, {"temperature": 0.01, "top_k": 3}),
        ({"n": 2, "seed": 7, "stream": True}, {"n": 2, "seed": 7, "output_kind": 1}),
        ({"stop": ["abc", "d"]}, {"stop": ["abc", "d"], "output_text_buffer_length": 2}),
        ({"stop": "abc", "include_stop_str_in_output": True}, {"stop": ["abc"], "include_stop_str_in_output": True}),
        ({"skip_special_tokens": False, "spaces_between_special_tokens": False},
         {"skip_special_tokens": False, "spaces_between_special_tokens": False}),
        ({"logit_bias": {"5": 1}, "allowed_token_ids": [5]}, {"logit_bias": {"5": 1.0}, "allowed_token_ids": [5]}),
        ({"logprobs": 2, "prompt_logprobs": 1},
         {"logprobs": 2, "prompt_logprobs": 1, "skip_reading_prefix_cache": True}),
        ({"ignore_eos": True, "min_tokens": 2, "stop_token_ids": [7]},
         {"ignore_eos": True, "min_tokens": 2, "stop_token_ids": [7]}),
        ({"repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
         {"repetition_detection": {"max_pattern_size": 3, "min_pattern_size": 0, "min_count": 2}}),
        ({"vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"stream_interval": 3}, {"stream_interval": 3}),
        ({"thinking_token_budget": 5}, {"thinking_token_budget": 5}),
    ],
)  # fmt: skip
async def test_what_is_requested_is_in_it(tmp_path: Path, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """Under vLLM's names."""
    assert expected.items() <= (await rendered_sampling(tmp_path, **fields)).items()


async def test_greedy_sampling_has_no_other_limits(tmp_path: Path) -> None:
    """As in vLLM, which then resets them."""
    params = await rendered_sampling(tmp_path, temperature=0, top_k=5, top_p=0.5, min_p=0.5)

    assert not {"top_k", "top_p", "min_p"} & params.keys()


@pytest.mark.parametrize(
    ("grammar", "name", "value"),
    [
        ({"json": {"type": "object"}}, "json", {"type": "object"}),
        ({"regex": "a+"}, "regex", "a+"),
        ({"choice": ["a", "b"]}, "choice", ["a", "b"]),
        ({"json_object": True, "disable_any_whitespace": True}, "json_object", True),
    ],
)
async def test_grammars_are_in_vllms_fields(tmp_path: Path, grammar: dict[str, Any], name: str, value: Any) -> None:
    """One constraint, the others null."""
    rendered = (await rendered_sampling(tmp_path, structured_outputs=grammar))["structured_outputs"]

    constraints = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}
    assert {key: rendered[key] for key in constraints} == {**dict.fromkeys(constraints), name: value}
    assert rendered["disable_any_whitespace"] is bool(grammar.get("disable_any_whitespace"))


async def test_offsets_are_of_characters(tmp_path: Path) -> None:
    """On request, of texts only; of a cut text they are those of what is left."""
    body = {**PROMPT, "return_token_offsets": True}
    async with served(tmp_path) as client:
        (whole,) = (await client.post("/v1/completions/render", json=body)).json()
        (cut,) = (await client.post("/v1/completions/render", json={**body, "truncate_prompt_tokens": 4})).json()
        right = {**body, "truncate_prompt_tokens": 4, "truncation_side": "right"}
        (first,) = (await client.post("/v1/completions/render", json=right)).json()
        (ids,) = (await client.post("/v1/completions/render", json={**body, "prompt": [65]})).json()
        (without,) = (await client.post("/v1/completions/render", json=PROMPT)).json()

    spans = [["Zürich"[start:end] for start, end in each["token_offsets"]] for each in (whole, cut, first)]
    assert spans == [["Z", "ü", "ü", "r", "i", "c", "h"], ["r", "i", "c", "h"], ["Z", "ü", "ü", "r"]]
    assert ids["token_offsets"] is without["token_offsets"] is None
