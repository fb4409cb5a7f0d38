"""Request fields are translated exactly or rejected."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tokenwire.coordinator.api.fields.common import (
    Headers,
    RequestFields,
    UnsupportedFields,
    check_stream_options,
    request_id,
)
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.types import Truncation
from tokenwire.errors import InvalidRequest

NOT_SERVED: dict[str, tuple[Any, ...]] = {"suffix": (None, ""), "use_beam_search": (None, False)}


def body(**fields: Any) -> RequestFields:
    """Parse a body."""
    return RequestFields.model_validate(fields)


def test_stream_options_need_a_stream() -> None:
    """stream_options without stream is an error, as in vLLM."""
    with pytest.raises(InvalidRequest, match="stream=True"):
        check_stream_options(body(stream_options={"include_usage": True}))


def test_empty_stream_options_need_no_stream() -> None:
    """As in vLLM."""
    check_stream_options(body(stream_options={}))
    with pytest.raises(InvalidRequest, match="stream=True"):
        check_stream_options(body(stream_options={"unknown": None}))


def test_repetitions_of_any_length_can_be_detected() -> None:
    """Numbers beyond the protocol's are reduced to its largest."""
    sizes = {"max_pattern_size": 2**40, "min_pattern_size": 2**33, "min_count": 2**32}
    wire = body(repetition_detection=sizes).sampling(None).repetition_detection

    assert (wire.max_pattern_size, wire.min_pattern_size, wire.min_count) == (2**32 - 1,) * 3


def test_absent_fields_stay_absent() -> None:
    """The model's defaults apply to fields that the client did not set."""
    sampling = body().sampling(None)

    assert not sampling.HasField("temperature")
    assert not sampling.HasField("max_tokens")
    assert not sampling.HasField("seed")


def test_given_fields_are_translated() -> None:
    """Numbers keep their precision, zero is a value, ids lose duplicates, biases are clamped."""
    fields = body(
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
    assert not body(seed=-1).sampling(None).HasField("seed")


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
def test_numbers_out_of_range_are_refused(fields: dict[str, Any], max_tokens: int | None, param: str) -> None:
    """Nothing overflows in the protocol."""
    with pytest.raises(InvalidRequest) as caught:
        body(**fields).sampling(max_tokens)

    assert caught.value.param == param


@pytest.mark.parametrize(("stop", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_stop_strings_stay_in_the_coordinator(stop: Any, expected: tuple[str, ...]) -> None:
    """Stop strings become text rules, in either form."""
    assert body(stop=stop).text_rules() == TextRules(stop=expected)


def test_the_request_id_is_the_clients_if_given() -> None:
    """The header takes precedence over the body; without either an id is generated."""
    assert request_id("chatcmpl-", "b", "h") == "chatcmpl-h"
    assert request_id("chatcmpl-", "b", None) == "chatcmpl-b"
    assert len(request_id("cmpl-", None, None)) == len("cmpl-") + 32


@pytest.mark.parametrize("name", ["request_id", "session_id"])
@pytest.mark.parametrize("value", ["x" * 513, "a\nb", "\x00", "a\x85b", "\x9b2J", "\u2028", "a\u2029"])
def test_identifiers_from_clients_are_bounded(name: str, value: str) -> None:
    """Every chunk and choice repeats them, and logs contain them; in headers as in bodies."""
    with pytest.raises(InvalidRequest) as in_body:
        body(**{name: value})
    header = f"x-{name.replace('_', '-')}"
    with pytest.raises(InvalidRequest) as in_header:
        Headers({header: value})

    assert in_body.value.param == name
    assert (in_header.value.param or "").lower() == header
    assert body(**{name: "x" * 512}).model_fields_set == {name}


def test_a_session_in_extra_arguments_is_bounded_too() -> None:
    """In any place."""
    with pytest.raises(InvalidRequest, match="more than 512"):
        Headers({}).conversation(body(vllm_xargs={"session_id": "x" * 513}))


def test_an_invalid_rank_is_refused() -> None:
    """The protocol has 32 bits for it; other text would be ignored silently."""
    assert Headers({"x-data-parallel-rank": str(2**32 - 1)}).data_parallel_rank == 2**32 - 1
    for rank in (-1, 2**32, 2**70, "x", "", "1.5", "9" * 5000):
        with pytest.raises(InvalidRequest, match="X-Data-Parallel-Rank must be a whole number") as refused:
            Headers({"x-data-parallel-rank": str(rank)}).data_parallel_rank  # noqa: B018
        assert refused.value.param == "X-Data-Parallel-Rank"


def test_engine_objects_are_passed_as_json() -> None:
    """The engine's own fields are passed unchanged; empty objects count as absent."""
    sampling = body(kv_transfer_params={"a": [1]}, vllm_xargs={"b": "c"}, ec_transfer_params={}).sampling(None)

    assert sampling.kv_transfer_params_json == '{"a": [1]}'
    assert sampling.extra_args_json == '{"b": "c"}'
    assert not sampling.HasField("ec_transfer_params_json")


def test_truncation_keeps_an_absent_side() -> None:
    """Without a side, special tokens are kept around the end of the text."""
    assert body().truncation() is None
    assert body(truncate_prompt_tokens=5).truncation() == Truncation(5, None)
    assert body(truncate_prompt_tokens=-1, truncation_side="right").truncation() == Truncation(-1, "right")


def test_headers_add_to_the_body() -> None:
    """A header's priority takes precedence, a body's conversation id does; an invalid priority counts as absent."""
    headers = Headers({"x-vllm-priority": "3", "x-session-id": "h", "x-data-parallel-rank": "1"})
    assert (headers.priority(5), headers.data_parallel_rank, headers.conversation(body())) == (3, 1, "h")
    assert headers.conversation(body(session_id="b")) == "b"

    nothing = Headers({"x-vllm-priority": "high"})
    assert (nothing.priority(5), nothing.data_parallel_rank) == (5, None)
    assert nothing.conversation(body(vllm_xargs={"session_id": "x"})) == "x"


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True}])
def test_known_fields_that_are_not_served_are_refused(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        UnsupportedFields(NOT_SERVED).check(fields)

    assert caught.value.param == next(iter(fields))


def test_values_without_effect_pass() -> None:
    """Clients that send defaults explicitly are served."""
    UnsupportedFields(NOT_SERVED).check({"suffix": "", "use_beam_search": False})
    UnsupportedFields(NOT_SERVED).check(None)


class _Body(BaseModel):
    model_config = ConfigDict(extra="allow")

    suffix: str | None = None
    use_beam_search: bool = False


@pytest.mark.parametrize("fields", [{"suffix": "x"}, {"use_beam_search": True, "suffix": ""}])
def test_declared_fields_are_refused_as_well(fields: dict[str, Any]) -> None:
    """Whether a model declares a field's type or not, a value that is not served is rejected by name."""
    unsupported = UnsupportedFields(NOT_SERVED)
    unsupported.check_body(_Body(use_beam_search=False))

    with pytest.raises(InvalidRequest) as caught:
        unsupported.check_body(_Body(**fields))

    assert caught.value.param == next(iter(fields))


def test_unknown_fields_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Only the first occurrence is logged; harmless fields never."""
    unsupported = UnsupportedFields(NOT_SERVED)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            unsupported.check({"frobnicate": 1, "metadata": {}, "store": True})

    assert [record.args for record in caplog.records] == [('"frobnicate"',)]
