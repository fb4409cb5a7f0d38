"""Request fields are translated exactly or rejected."""

from typing import Any

import pytest

from tests.coordinator.api.fields.requests import request_fields
from tokenwire.coordinator.api.api_request import RequestHeaders
from tokenwire.coordinator.api.fields.common import check_stream_options
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.types import Truncation
from tokenwire.errors import InvalidRequest


def test_stream_options_need_a_stream() -> None:
    """stream_options without stream is an error, as in vLLM."""
    with pytest.raises(InvalidRequest, match="stream=True"):
        check_stream_options(request_fields(stream_options={"include_usage": True}))


def test_empty_stream_options_need_no_stream() -> None:
    """As in vLLM."""
    check_stream_options(request_fields(stream_options={}))
    with pytest.raises(InvalidRequest, match="stream=True"):
        check_stream_options(request_fields(stream_options={"unknown": None}))


def test_absent_fields_stay_absent() -> None:
    """The model's defaults apply to fields that the client did not set."""
    sampling = request_fields().sampling(None)

    assert not sampling.HasField("temperature")
    assert not sampling.HasField("max_tokens")
    assert not sampling.HasField("seed")


def test_given_fields_are_translated() -> None:
    """Numbers keep their precision, zero is a value, ids lose duplicates, biases are clamped."""
    fields = request_fields(
        temperature=0.0,
        top_p=0.1,
        top_k=-1,
        seed=2**62,
        stop_token_ids=[3, 3, 1],
        logit_bias={"5": 1000.0, "6": -0.1},
        bad_words=["x"],
    )

    sampling = fields.sampling(9)

    assert sampling.HasField("temperature")
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.0, 0.1, -1, 2**62)
    assert list(sampling.stop_token_ids) == [3, 1]
    assert dict(sampling.logit_bias) == {5: 100.0, 6: -0.1}
    assert sampling.max_tokens == 9


def test_seed_minus_one_is_no_seed() -> None:
    """As in vLLM, -1 means no seed."""
    assert not request_fields(seed=-1).sampling(None).HasField("seed")


@pytest.mark.parametrize(
    ("fields", "max_tokens", "param"),
    [
        ({}, 0, "max_tokens"),
        ({}, -5, "max_tokens"),
        ({"min_tokens": -1}, None, "min_tokens"),
        ({"top_k": 2**40}, None, "top_k"),
        ({"stop_token_ids": [2**33]}, None, "stop_token_ids"),
        ({"logit_bias": {"-3": 1}}, None, "logit_bias"),
        ({"cache_salt": "a/b"}, None, "cache_salt"),
        ({"allowed_token_ids": []}, None, "allowed_token_ids"),
        ({"logprob_token_ids": [-1]}, None, "logprob_token_ids"),
        ({"thinking_token_budget": -2}, None, "thinking_token_budget"),
        ({"prompt_logprobs": 2**40}, None, "prompt_logprobs"),
    ],
)
def test_numbers_out_of_range_are_rejected(fields: dict[str, Any], max_tokens: int | None, param: str) -> None:
    """Nothing overflows in the protocol."""
    with pytest.raises(InvalidRequest) as caught:
        request_fields(**fields).sampling(max_tokens)

    assert caught.value.param == param


@pytest.mark.parametrize(("stop", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_stop_strings_stay_in_the_coordinator(stop: Any, expected: tuple[str, ...]) -> None:
    """Stop strings become text rules, in either form."""
    assert request_fields(stop=stop).text_rules() == TextRules(stop=expected)


def test_what_sampling_has_copied_is_dropped() -> None:
    """A body is kept until its reply has been sent."""
    large = {"allowed_token_ids": [1], "logit_bias": {"1": 2.0}, "vllm_xargs": {"a": "x"}}
    body = request_fields(**large, temperature=0.5)
    sampling = body.sampling(None)

    body.drop_copied()

    assert (list(sampling.allowed_token_ids), sampling.extra_args_json) == ([1], '{"a":"x"}')
    assert [getattr(body, name) for name in large] == [None] * 3
    assert body.temperature == 0.5


def test_truncation_keeps_an_absent_side() -> None:
    """Without a side, special tokens are kept around the end of the text."""
    assert request_fields().truncation() is None
    assert request_fields(truncate_prompt_tokens=5).truncation() == Truncation(5, None)
    assert request_fields(truncate_prompt_tokens=-1, truncation_side="right").truncation() == Truncation(-1, "right")


@pytest.mark.parametrize("name", ["request_id", "session_id"])
@pytest.mark.parametrize("value", ["x" * 513, "a\nb", "\x00", "a\x85b", "\x9b2J", "\u2028", "a\u2029"])
def test_identifiers_from_clients_are_bounded(name: str, value: str) -> None:
    """Every chunk and choice repeats them, and logs contain them; in headers as in bodies."""
    with pytest.raises(InvalidRequest) as in_body:
        request_fields(**{name: value})
    header = f"x-{name.replace('_', '-')}"
    with pytest.raises(InvalidRequest) as in_header:
        RequestHeaders({header: value})

    assert in_body.value.param == name
    assert (in_header.value.param or "").lower() == header
    assert request_fields(**{name: "x" * 512}).model_fields_set == {name}


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({}, "tensors"),
        ({"mm_payload": "none"}, "none"),
        ({"return_mm_kwargs": False}, "none"),
        ({"return_mm_kwargs": True}, "tensors"),
        ({"return_mm_kwargs": False, "mm_payload": "tensors"}, "tensors"),
    ],
)
def test_the_older_field_for_features_counts_without_the_newer_one(fields: dict[str, Any], payload: str) -> None:
    """As in vLLM."""
    assert request_fields(**fields).features_payload == payload
