"""Request fields: refused by name, ignored once, or translated exactly."""

import logging
from typing import Any

import pytest

from coordinator.api.fields import FieldGate, SamplingFields, request_id
from coordinator.request import TextRules
from tokenwire.errors import InvalidRequest

GATE_FIELDS: dict[str, tuple[Any, ...]] = {"tools": (None,), "logprobs": (None, False)}


def body(**fields: Any) -> SamplingFields:
    """Parse a body."""
    return SamplingFields.model_validate(fields)


@pytest.mark.parametrize("fields", [{"tools": []}, {"logprobs": True}, {"use_beam_search": True}, {"echo": True}])
def test_known_fields_that_are_not_served_are_refused(fields: dict[str, Any]) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as caught:
        FieldGate(GATE_FIELDS).check(body(**fields))

    assert caught.value.param == next(iter(fields))


def test_values_that_change_nothing_pass() -> None:
    """Clients that spell defaults out are served."""
    FieldGate(GATE_FIELDS).check(body(tools=None, logprobs=False, response_format={"type": "text"}, echo=False))


def test_unknown_fields_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log names an unknown field at its first appearance only; harmless ones never."""
    gate = FieldGate(GATE_FIELDS)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            gate.check(body(frobnicate=1, metadata={}, store=True))

    assert [record.args for record in caplog.records] == [('"frobnicate"',)]


def test_stream_options_need_a_stream() -> None:
    """stream_options without stream is an error, as in vLLM."""
    with pytest.raises(InvalidRequest, match="stream=True"):
        FieldGate({}).check(body(stream_options={"include_usage": True}))


def test_absent_fields_stay_absent() -> None:
    """What the client did not say is left to the model's defaults."""
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
    """vLLM takes -1 for no seed; so do we."""
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
    ],
)
def test_numbers_that_no_engine_takes_are_refused(fields: dict[str, Any], max_tokens: int | None, param: str) -> None:
    """Nothing that overflows the wire gets as far as the wire."""
    with pytest.raises(InvalidRequest) as caught:
        body(**fields).sampling(max_tokens)

    assert caught.value.param == param


@pytest.mark.parametrize(("stop", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_stop_strings_stay_on_this_side(stop: Any, expected: tuple[str, ...]) -> None:
    """Stop strings become text rules, whichever form they come in."""
    assert body(stop=stop).text_rules() == TextRules(stop=expected)


def test_the_request_id_is_the_clients_when_given() -> None:
    """The header wins over the body; without either an id is made up."""
    assert request_id("chatcmpl", body(request_id="b"), "h") == "chatcmpl-h"
    assert request_id("chatcmpl", body(request_id="b"), None) == "chatcmpl-b"
    assert len(request_id("cmpl", body(), None)) == len("cmpl-") + 32
