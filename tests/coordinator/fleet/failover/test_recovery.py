"""How requests are resumed, and the submission for their remainder."""

from typing import Any

import pytest

from tokenwire.coordinator.fleet.capabilities import common_capabilities
from tokenwire.coordinator.fleet.failover.recovery import (
    Recovery,
    can_continue_plausibly,
    keeps_place,
    needs_single_run,
    recovery_of,
    remainder,
    seed_for_replay,
)
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.v1 import inference_pb2 as pb

GRAMMAR = pb.StructuredOutputs(regex="a+")
INVARIANT = pb.EngineCapabilities(seeds=True, batch_invariant=True)
POSITIONAL = pb.EngineCapabilities(seeds=True, positional_seeds=True, batch_invariant=True)
UNKNOWN = pb.EngineCapabilities()
SEEDED = {"temperature": 1.0, "seed": 7}
DETECTION = pb.RepetitionDetection(max_pattern_size=4, min_count=3)


def submit_of_three(**sampling: Any) -> Submission:
    """Return a request of three sequences."""
    return Submission(
        request_id="r",
        prompt_token_ids=[1, 2, 3],
        sampling_params=pb.SamplingParams(**sampling),
        max_tokens=10,
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
def test_what_determines_the_next_token_determines_the_recovery(sampling: dict[str, Any], expected: Recovery) -> None:
    """Continued if prompt and tokens do; replayed if the generator or the start of the output does."""
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
def test_the_capabilities_of_engines_determine_the_recovery(
    engines: pb.EngineCapabilities, exact: bool, greedy: Recovery, seeded: Recovery
) -> None:
    """Positional noise continues anywhere; without batch invariance only a replay verifies that a reply is exact."""
    assert recovery_of(pb.SamplingParams(temperature=0.0), engines, exact) is greedy
    assert recovery_of(pb.SamplingParams(temperature=1.0, seed=7), engines, exact) is seeded
    assert recovery_of(pb.SamplingParams(temperature=1.0), engines, exact) is Recovery.CONTINUE
    penalized = pb.SamplingParams(temperature=0.0, presence_penalty=1.0)
    assert recovery_of(penalized, engines, exact) is Recovery.REPLAY


def test_a_request_that_cannot_be_replayed_continues_plausibly_or_not() -> None:
    """Unseeded requests with penalties, on an engine without safe seeds: an error if a single run is needed."""
    penalized = pb.SamplingParams(temperature=1.0, presence_penalty=1.0)
    assert recovery_of(penalized, UNKNOWN, exact=True) is Recovery.NONE
    assert recovery_of(penalized, UNKNOWN, exact=False) is Recovery.CONTINUE
    formed = pb.SamplingParams(temperature=1.0, structured_outputs=GRAMMAR)
    assert recovery_of(formed, UNKNOWN, exact=False) is Recovery.NONE


def test_constrained_output_does_not_continue_plausibly() -> None:
    """Grammars and traces restart with each request; penalties only count less."""
    assert can_continue_plausibly(pb.SamplingParams(seed=7, presence_penalty=1.0, bad_words=["no"]))
    for fields in ({"structured_outputs": GRAMMAR}, {"trace_decode_token_ids": [5]}, {"kv_transfer_params_json": "x"}):
        assert not can_continue_plausibly(pb.SamplingParams(**fields))


def test_log_probabilities_need_a_single_run() -> None:
    """Those requested for the reply."""
    assert needs_single_run(pb.SamplingParams(logprobs=0))
    assert needs_single_run(pb.SamplingParams(logprob_token_ids=[3]))
    assert not needs_single_run(pb.SamplingParams(prompt_logprobs=3))


def test_common_capabilities_are_those_of_all_engines() -> None:
    """Without engines there are none."""
    assert common_capabilities([POSITIONAL, INVARIANT]) == INVARIANT
    assert common_capabilities([POSITIONAL, UNKNOWN]) == UNKNOWN
    assert common_capabilities([]) == UNKNOWN


def test_the_remainder_is_a_request_of_one_sequence() -> None:
    """The tokens are in its prompt, limits are reduced, everything else is unchanged, and so is the original."""
    full = submit_of_three(temperature=0.0, min_tokens=6, prompt_logprobs=2, stop_token_ids=[9])
    before = full.message()

    rest = remainder(full, 1, [7, 8], prompt_scored=True)

    assert full.message() == before
    assert list(rest.prompt_token_ids) == [1, 2, 3, 7, 8]
    assert (rest.request_id, rest.cache_salt, rest.lora.id) == ("r", "salt", 3)
    params = rest.sampling_params
    assert (rest.max_tokens, params.min_tokens, list(params.stop_token_ids)) == (8, 4, [9])
    assert not params.HasField("prompt_logprobs")


def test_prompt_log_probabilities_that_were_not_sent_are_requested_again() -> None:
    """A request that was lost before its first token is sent unchanged."""
    rest = remainder(submit_of_three(prompt_logprobs=2, min_tokens=3), 0, [], prompt_scored=False)
    assert (rest.sampling_params.prompt_logprobs, rest.sampling_params.min_tokens) == (2, 3)


def test_min_tokens_are_not_negative() -> None:
    """Once there are enough, any token may end it."""
    assert remainder(submit_of_three(min_tokens=2), 0, [7, 8, 9], prompt_scored=True).sampling_params.min_tokens == 0


def test_a_sequence_with_more_tokens_than_it_may_have_gets_none() -> None:
    """Its worker sent too many before it was lost."""
    assert remainder(submit_of_three(), 0, [7] * 11, prompt_scored=True).max_tokens == 0


def test_each_sequence_has_its_own_seed() -> None:
    """Sequence i samples with seed + i, and never with -1, which means none; a greedy one does not sample."""

    def sent(index: int, **sampling: float) -> pb.SamplingParams:
        rest = remainder(submit_of_three(**sampling), index, [], prompt_scored=True)
        return rest.message().submit.sampling_params

    assert sent(2, temperature=1.0, seed=7).seed == 9
    assert sent(2, temperature=0.0, seed=7).seed == 7
    assert recovery_of(sent(1, temperature=1.0, seed=-2), INVARIANT, exact=True) is Recovery.REPLAY


def test_a_seed_is_set_only_where_it_is_needed() -> None:
    """For an unseeded sampled request that can only be replayed, on an engine with safe seeds."""
    penalized = {"temperature": 1.0, "presence_penalty": 1.0}
    request = submit_of_three(**penalized)
    seed_for_replay(request, UNKNOWN)
    assert not request.sampling_params.HasField("seed")
    seed_for_replay(request, INVARIANT)
    assert request.sampling_params.HasField("seed")
    for sampling in ({"temperature": 1.0}, {"temperature": 0.0, "presence_penalty": 1.0}):
        request = submit_of_three(**sampling)
        seed_for_replay(request, INVARIANT)
        assert not request.sampling_params.HasField("seed")
    seeded = submit_of_three(**penalized, seed=3)
    seed_for_replay(seeded, INVARIANT)
    assert seeded.sampling_params.seed == 3


@pytest.mark.parametrize(
    ("sampling", "engines", "expected"),
    [
        ({"temperature": 1.0}, INVARIANT, False),
        ({"temperature": 0.0}, INVARIANT, False),
        (SEEDED, POSITIONAL, False),
        (SEEDED, INVARIANT, True),
        ({"temperature": 0.0, "structured_outputs": GRAMMAR}, POSITIONAL, True),
        ({"temperature": 1.0, "presence_penalty": 1e-9}, INVARIANT, True),
        ({"temperature": 1.0, "presence_penalty": 1e-9}, UNKNOWN, False),
    ],
)
def test_what_would_be_replayed_keeps_its_place(
    sampling: dict[str, Any], engines: pb.EngineCapabilities, expected: bool
) -> None:
    """Also what gets a seed only when it is placed."""
    assert keeps_place(pb.SamplingParams(**sampling), engines, exact=False) is expected
