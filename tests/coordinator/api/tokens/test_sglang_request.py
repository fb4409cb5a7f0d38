"""SGLang's names are translated to vLLM's."""

from typing import Any

import pytest

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.tokens.sglang_request import SglangRequest
from tokenwire.coordinator.types import GenerationRequest, TextPrompt, TokenPrompt
from tokenwire.errors import InvalidRequest


def sglang_generation(sampling: dict[str, Any] | None = None, **body: Any) -> GenerationRequest:
    """Return the GenerationRequest of a request."""
    request = SglangRequest.model_validate({"input_ids": [5, 6], "sampling_params": sampling, **body})
    return request.to_generation("id", "s", RequestHeaders({"x-data-parallel-rank": "1"}))


def test_names_are_translated() -> None:
    """Parameters with other names reach the worker under vLLM's."""
    request = sglang_generation(
        {
            **{"max_new_tokens": 7, "min_new_tokens": 2, "sampling_seed": 9, "no_stop_trim": True, "regex": "a+"},
            **{"temperature": 0.5, "top_k": 1 << 30, "stop": ["x"], "skip_special_tokens": False},
        },
        priority=3,
    )

    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.seed, sampling.top_k) == (7, 2, 9, 1 << 30)
    assert sampling.structured_outputs.regex == "a+"
    assert (request.text.stop, request.text.include_stop_str_in_output, request.text.detokenize) == (("x",), True, True)
    assert (request.priority, request.conversation_id, request.data_parallel_rank) == (-3, "s", 1)


def test_defaults_are_sglangs() -> None:
    """128 tokens, and no log-probabilities."""
    sampling = sglang_generation().sampling

    assert (sampling.max_tokens, sampling.temperature) == (128, 1.0)
    assert sglang_generation({}).sampling == sampling
    assert not sampling.HasField("logprobs")


@pytest.mark.parametrize(("start", "prompt"), [(-1, None), (0, 0)])
def test_prompt_logprobs_are_requested_only_if_returned(start: int, prompt: int | None) -> None:
    """logprob_start_len is the first position; -1 means none. Those of other tokens are not returned."""
    sampling = sglang_generation(return_logprob=True, top_logprobs_num=2, logprob_start_len=start).sampling

    assert sampling.logprobs == 2
    assert (sampling.prompt_logprobs if sampling.HasField("prompt_logprobs") else None) == prompt


def test_prompts_are_text_or_ids_one_or_many() -> None:
    """All four forms; a batch has a list as its response."""
    assert sglang_generation(text="a", input_ids=None).prompts == [TextPrompt("a")]
    assert sglang_generation(text=["a", "b"], input_ids=None).prompts == [TextPrompt("a"), TextPrompt("b")]
    assert sglang_generation(input_ids=[[1], [2]]).prompts == [
        TokenPrompt([1], "input_ids"),
        TokenPrompt([2], "input_ids"),
    ]
    assert SglangRequest.model_validate({"input_ids": [[1]]}).is_batch
    assert not SglangRequest.model_validate({"input_ids": [1]}).is_batch


NO_PROMPT: list[dict[str, Any]] = [{"text": "a"}, {"input_ids": None}, {"input_ids": []}]


@pytest.mark.parametrize("body", NO_PROMPT)
def test_exactly_one_kind_of_prompt_is_required(body: dict[str, Any]) -> None:
    """Neither both nor none."""
    with pytest.raises(InvalidRequest):
        sglang_generation(**body)
