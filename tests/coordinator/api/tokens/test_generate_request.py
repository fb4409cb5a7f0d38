"""The translation of /inference/v1/generate."""

from typing import Any

import pytest
from pydantic import ValidationError

from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.tokens.generate_request import GenerateRequest
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.types import GenerationRequest, TokenPrompt
from tokenwire.errors import InvalidRequest


def generation_of(sampling: dict[str, Any] | None = None, headers: dict[str, str] | None = None, **body: Any) -> Any:
    """Return the GenerationRequest of a request."""
    full = {"token_ids": [5, 6], "sampling_params": sampling or {}, **body}
    request: GenerationRequest = GenerateRequest.model_validate(full).to_generation("id", RequestHeaders(headers or {}))
    return request


def test_ids_are_the_prompt() -> None:
    """They are used unchanged, and errors name their field."""
    assert generation_of().prompts == [TokenPrompt([5, 6], "token_ids")]


def test_absent_parameters_are_vllms() -> None:
    """The generation config does not change the sampling of rollouts."""
    sampling = generation_of({"top_k": 7}).sampling

    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.repetition_penalty) == (1.0, 1.0, 7, 1.0)
    assert not sampling.HasField("max_tokens")


def test_ids_are_not_decoded() -> None:
    """Without output_mode text only stop strings need decoding, and there may be many."""
    assert generation_of({"stop": list("abcdefgh")}).text == TextRules(tuple("abcdefgh"), detokenize=False)
    assert generation_of(output_mode="text").text.detokenize


def test_other_fields_are_passed_on() -> None:
    """Salt, priority, rank, session, reasoning and the engine's own parameters reach the worker."""
    request = generation_of(
        {
            **{"n": 2, "seed": 2**62, "extra_args": {"a": 1}},
            **{"trace_decode_token_ids": [3], "skip_reading_prefix_cache": True},
        },
        {"x-session-id": "s", "x-data-parallel-rank": "1"},
        cache_salt="policy-7",
        priority=-3,
        reasoning_ended=True,
        reasoning_parser_kwargs={"chat_template_kwargs": {"enable_thinking": False}},
        kv_transfer_params={"b": 2},
    )

    assert (request.n, request.sampling.seed, request.cache_salt, request.priority) == (2, 2**62, "policy-7", -3)
    assert (request.conversation_id, request.data_parallel_rank, request.reasoning_ended) == ("s", 1, True)
    assert request.reasoning_parser_kwargs == {"chat_template_kwargs": {"enable_thinking": False}}
    assert request.sampling.extra_args_json == '{"a":1}'
    assert request.sampling.kv_transfer_params_json == '{"b":2}'
    assert list(request.sampling.trace_decode_token_ids) == [3]
    assert request.sampling.skip_reading_prefix_cache


@pytest.mark.parametrize(
    ("sampling", "param"),
    [({"logprobs": -2}, "logprobs"), ({"max_tokens": 0}, "max_tokens"), ({"trace_decode_token_ids": [-1]}, "trace")],
)
def test_wrong_parameters_are_named(sampling: dict[str, Any], param: str) -> None:
    """Invalid parameters are rejected here."""
    with pytest.raises(InvalidRequest) as caught:
        generation_of(sampling)

    assert (caught.value.param or "").startswith(param)


@pytest.mark.parametrize("wrong", [{"token_ids": []}, {"sampling_params": None}, {"output_mode": "both"}])
def test_required_fields_are_checked(wrong: dict[str, Any]) -> None:
    """Ids and sampling parameters."""
    with pytest.raises(ValidationError):
        GenerateRequest.model_validate({"token_ids": [1], "sampling_params": {}, **wrong})
