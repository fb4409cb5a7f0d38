"""vLLM's SamplingParams as JSON."""

import pytest

from tokenwire.coordinator.api.tokens.sampling_params import SamplingParams, unsupported_sampling_params
from tokenwire.coordinator.types import TokenPrompt
from tokenwire.errors import InvalidRequest


def test_absent_parameters_have_vllms_defaults() -> None:
    """Not those of the model's generation config."""
    wire = SamplingParams(bad_words=[]).to_wire()

    assert (wire.temperature, wire.top_p, wire.top_k, wire.min_p, wire.repetition_penalty) == (1.0, 1.0, 0, 0.0, 1.0)
    assert not wire.HasField("max_tokens")
    assert not wire.HasField("skip_reading_prefix_cache")


def test_given_parameters_are_the_protocols() -> None:
    """With those that only token-in contracts have."""
    wire = SamplingParams(
        temperature=0.5,
        skip_reading_prefix_cache=True,
        prompt_logprob_start=3,
        trace_decode_token_ids=[7],
        bad_words=[],
    ).to_wire()

    assert (wire.temperature, wire.skip_reading_prefix_cache, wire.prompt_logprob_start) == (0.5, True, 3)
    assert list(wire.trace_decode_token_ids) == [7]


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_counts_below_minus_one_are_rejected(name: str) -> None:
    """-1 is all of them."""
    assert getattr(SamplingParams.model_validate({name: -1}).to_wire(), name) == -1
    with pytest.raises(InvalidRequest) as raised:
        SamplingParams.model_validate({name: -2}).to_wire()
    assert raised.value.param == name


def test_text_is_decoded_only_if_it_is_shown() -> None:
    """Stop strings are found all the same."""
    params = SamplingParams(stop="x", bad_words=[])

    hidden = params.to_generation("id", [TokenPrompt([1])]).text
    shown = params.to_generation("id", [TokenPrompt([1])], shows_text=True).text

    assert (hidden.stop, hidden.detokenize, shown.detokenize) == (("x",), False, True)


def test_parameters_without_a_field_are_known() -> None:
    """Those that only change how an engine reports pass; transfers belong elsewhere."""
    unsupported = unsupported_sampling_params()

    unsupported.check({"detokenize": False, "prompt_logprob_token_ids": None})
    for name in ("prompt_logprob_token_ids", "kv_transfer_params"):
        with pytest.raises(InvalidRequest, match=name):
            unsupported.check({name: [1]})
