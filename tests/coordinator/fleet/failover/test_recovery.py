"""How requests go on, and what a worker gets for what is left of them."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.failover.recovery import (
    Recovery,
    can_continue_plausibly,
    needs_single_run,
    recovery_of,
    remainder,
    seed_for_replay,
)
from tokenwire.v1 import inference_pb2 as pb

GRAMMAR = pb.StructuredOutputs(regex="a+")
INVARIANT = pb.EngineCapabilities(seeds=True, batch_invariant=True)
POSITIONAL = pb.EngineCapabilities(seeds=True, positional_seeds=True, batch_invariant=True)
UNKNOWN = pb.EngineCapabilities()
SEEDED = {"temperature": 1.0, "seed": 7}
DETECTION = pb.RepetitionDetection(max_pattern_size=4, min_count=3)


def submit(**sampling: Any) -> pb.Submit:
    """Return a request of three sequences."""
    return pb.Submit(
        request_id="r",
        slots=[4, 5, 6],
        prompt_token_ids=[1, 2, 3],
        sampling_params=pb.SamplingParams(**sampling),
        cache_salt="salt",
        lora=pb.LoraAdapter(name="red", id=3),
    )


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"temperature": 0.0}, Recovery.CONTINUE),
        ({"temperature": 1.0}, Recovery.CONTINUE),
        ({"temperature": 1.0, "seed": -1}, Recovery.CONTINUE),
        ({"temperature": 0.0, "seed": 7}, Recovery.CONTINUE),
        ({"repetition_penalty": 1.3, "logit_bias": {5: 1.0}, "allowed_token_ids": [5, 6]}, Recovery.CONTINUE),
        ({"min_tokens": 5, "stop_token_ids": [7], "logprobs": 3, "prompt_logprobs": 1}, Recovery.CONTINUE),
        ({"temperature": 1.0, "seed": 7}, Recovery.REPLAY),
        ({**SEEDED, "presence_penalty": -0.5}, Recovery.REPLAY),
        ({**SEEDED, "frequency_penalty": 0.5}, Recovery.REPLAY),
        ({"temperature": 0.0, "bad_words": ["no"]}, Recovery.REPLAY),
        ({"temperature": 0.0, "structured_outputs": GRAMMAR}, Recovery.REPLAY),
        ({**SEEDED, "repetition_detection": DETECTION}, Recovery.REPLAY),
        ({**SEEDED, "thinking_token_budget": 5}, Recovery.REPLAY),
        ({"temperature": 0.0, "trace_decode_token_ids": [5]}, Recovery.REPLAY),
        ({**SEEDED, "extra_args_json": "{}"}, Recovery.REPLAY),
        ({"kv_transfer_params_json": "{}"}, Recovery.NONE),
        ({"ec_transfer_params_json": "{}"}, Recovery.NONE),
    ],
)
def test_what_decides_the_next_token_decides_the_way(sampling: dict[str, Any], expected: Recovery) -> None:
    """From prompt and tokens where these are all; from the start where the generator or the output counts."""
    for exact in (True, False):
        assert recovery_of(pb.SamplingParams(**sampling), INVARIANT, exact) is expected


@pytest.mark.parametrize(
    ("engines", "exact", "greedy", "seeded"),
    [
        (POSITIONAL, True, Recovery.CONTINUE, Recovery.CONTINUE),
        (INVARIANT, True, Recovery.CONTINUE, Recovery.REPLAY),
        (UNKNOWN, True, Recovery.REPLAY, Recovery.REPLAY),
        (UNKNOWN, False, Recovery.CONTINUE, Recovery.REPLAY),
        (pb.EngineCapabilities(positional_seeds=True), True, Recovery.REPLAY, Recovery.REPLAY),
        (pb.EngineCapabilities(positional_seeds=True), False, Recovery.CONTINUE, Recovery.CONTINUE),
    ],
)
def test_what_engines_can_decides_too(
    engines: pb.EngineCapabilities, exact: bool, greedy: Recovery, seeded: Recovery
) -> None:
    """Noise of the position goes on anywhere; where batches matter, only a second run shows that a reply is exact."""
    assert recovery_of(pb.SamplingParams(temperature=0.0), engines, exact) is greedy
    assert recovery_of(pb.SamplingParams(temperature=1.0, seed=7), engines, exact) is seeded
    assert recovery_of(pb.SamplingParams(temperature=1.0), engines, exact) is Recovery.CONTINUE
    penalized = pb.SamplingParams(temperature=0.0, presence_penalty=1.0)
    assert recovery_of(penalized, engines, exact) is Recovery.REPLAY


def test_what_no_second_run_says_again_goes_on_plausibly_or_not() -> None:
    """Unseeded requests with penalties, where the engine bears no seed: an error for who wants one run."""
    penalized = pb.SamplingParams(temperature=1.0, presence_penalty=1.0)
    assert recovery_of(penalized, UNKNOWN, exact=True) is Recovery.NONE
    assert recovery_of(penalized, UNKNOWN, exact=False) is Recovery.CONTINUE
    formed = pb.SamplingParams(temperature=1.0, structured_outputs=GRAMMAR)
    assert recovery_of(formed, UNKNOWN, exact=False) is Recovery.NONE


def test_what_has_a_form_does_not_go_on_plausibly() -> None:
    """Grammars and traces begin anew with each request; penalties only count less."""
    assert can_continue_plausibly(pb.SamplingParams(seed=7, presence_penalty=1.0, bad_words=["no"]))
    for fields in ({"structured_outputs": GRAMMAR}, {"trace_decode_token_ids": [5]}, {"kv_transfer_params_json": "x"}):
        assert not can_continue_plausibly(pb.SamplingParams(**fields))


def test_log_probabilities_are_those_of_one_run() -> None:
    """Those requested for the reply."""
    assert needs_single_run(pb.SamplingParams(logprobs=0))
    assert needs_single_run(pb.SamplingParams(logprob_token_ids=[3]))
    assert not needs_single_run(pb.SamplingParams(prompt_logprobs=3))


def test_engines_have_in_common_what_all_can() -> None:
    """None can nothing."""
    assert common_capabilities([POSITIONAL, INVARIANT]) == INVARIANT
    assert common_capabilities([POSITIONAL, UNKNOWN]) == UNKNOWN
    assert common_capabilities([]) == UNKNOWN


def test_what_is_left_is_a_request_of_one_sequence() -> None:
    """The tokens are in its prompt, lengths are less, everything else is as it was, and the original untouched."""
    whole = submit(temperature=0.0, max_tokens=10, min_tokens=6, prompt_logprobs=2, stop_token_ids=[9])
    before = whole.SerializeToString()

    rest = remainder(whole, 1, [7, 8], prompt_scored=True)

    assert whole.SerializeToString() == before
    assert list(rest.prompt_token_ids) == [1, 2, 3, 7, 8]
    assert list(rest.slots) == []
    assert (rest.request_id, rest.cache_salt, rest.lora.id) == ("r", "salt", 3)
    params = rest.sampling_params
    assert (params.max_tokens, params.min_tokens, list(params.stop_token_ids)) == (8, 4, [9])
    assert not params.HasField("prompt_logprobs")


def test_what_was_not_told_of_the_prompt_is_asked_again() -> None:
    """A request that was lost before its first token is sent as it was."""
    rest = remainder(submit(prompt_logprobs=2, min_tokens=3), 0, [], prompt_scored=False)
    assert (rest.sampling_params.prompt_logprobs, rest.sampling_params.min_tokens) == (2, 3)


def test_min_tokens_are_not_less_than_none() -> None:
    """Once there are enough, any token may end it."""
    assert remainder(submit(min_tokens=2), 0, [7, 8, 9], prompt_scored=True).sampling_params.min_tokens == 0


def test_each_sequence_has_its_own_seed() -> None:
    """Sequence i draws with seed + i, and never with -1, which engines read as none; a greedy one draws nothing."""
    assert remainder(submit(temperature=1.0, seed=7), 2, [], prompt_scored=True).sampling_params.seed == 9
    assert remainder(submit(temperature=0.0, seed=7), 2, [], prompt_scored=True).sampling_params.seed == 7
    alone = remainder(submit(temperature=1.0, seed=-2), 1, [], prompt_scored=True)
    assert recovery_of(alone.sampling_params, INVARIANT, exact=True) is Recovery.REPLAY


def test_only_what_needs_a_seed_gets_one() -> None:
    """An unseeded sampled request that can only be replayed, on an engine that bears seeds."""
    penalized = {"temperature": 1.0, "presence_penalty": 1.0}
    asked = submit(**penalized)
    seed_for_replay(asked, UNKNOWN)
    assert not asked.sampling_params.HasField("seed")
    seed_for_replay(asked, INVARIANT)
    assert asked.sampling_params.HasField("seed")
    for sampling in ({"temperature": 1.0}, {"temperature": 0.0, "presence_penalty": 1.0}):
        asked = submit(**sampling)
        seed_for_replay(asked, INVARIANT)
        assert not asked.sampling_params.HasField("seed")
    seeded = submit(**penalized, seed=3)
    seed_for_replay(seeded, INVARIANT)
    assert seeded.sampling_params.seed == 3
