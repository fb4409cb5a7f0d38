"""What a request takes of the coordinator's memory is known before it is submitted."""

import pytest

from tests.coordinator.api.replies import ScriptedPlan
from tests.coordinator.fakes import served_model
from tokenwire.coordinator.generation.request_cost import RequestCost
from tokenwire.coordinator.output.choice import MOST_DECODED
from tokenwire.coordinator.types import GenerationRequest
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

MODEL = served_model(max_model_len=10)
REQUEST_BYTES, CHOICE_BYTES = 26 * 1024, 1536


@pytest.mark.parametrize(("requested", "each"), [(0, 1), (3, 4), (-1, 10)])
def test_log_probabilities_of_prompts_are_counted_for_every_choice(requested: int, each: int) -> None:
    """Each token has its own and the most likely ones, -1: the vocabulary. The error names the option."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=5, streams=True)
    sampling = pb.SamplingParams(prompt_logprobs=requested)
    cost = RequestCost(request, sampling, MODEL)
    cost.add_prompt(100, 1)
    size = REQUEST_BYTES + 5 * CHOICE_BYTES + 100 * 40 + sampling.ByteSize() + (64 * 500 + 176 * 100) * each

    cost.check(size)
    with pytest.raises(InvalidRequest, match=f"{each} log-probabilities of 100 tokens, n=5") as caught:
        cost.check(size - 1)
    assert "--max-request-mb" in caught.value.message


def test_log_probabilities_of_long_prompts_count_as_they_are_kept() -> None:
    """As rows, not decoded as those of short ones are."""
    sampling = pb.SamplingParams(prompt_logprobs=0)
    sizes = []
    for tokens in (MOST_DECODED, 2 * MOST_DECODED):
        cost = RequestCost(GenerationRequest("r", "digits", [], sampling), sampling, MODEL)
        cost.add_prompt(tokens, 1)
        sizes.append(cost.size_bytes - 40 * tokens)

    assert sizes[1] - sizes[0] == 64 * MOST_DECODED
    assert 240 * MOST_DECODED < sizes[0] < 241 * MOST_DECODED + REQUEST_BYTES


def test_texts_of_which_most_is_cut_off_count() -> None:
    """They are kept with the request; others have fewer characters than their tokens count for."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams())
    cut, whole = (RequestCost(request, request.sampling, MODEL) for _ in range(2))
    cut.add_prompt(10, 1, 1_000_000)
    whole.add_prompt(10, 1, 50)

    assert cut.placed_bytes - whole.placed_bytes == 2 * 1_000_000 - 40 * 10
    with pytest.raises(InvalidRequest, match="10 prompt tokens with their text"):
        cut.check(10**6)


def test_parameters_count_once_for_each_prompt() -> None:
    """Each prompt is sent to a worker with a copy of them."""
    sampling = pb.SamplingParams(allowed_token_ids=[1] * 10_000)
    cost = RequestCost(GenerationRequest("r", "digits", [], sampling), sampling, MODEL)
    cost.add_prompt(1, 1)
    most = REQUEST_BYTES + CHOICE_BYTES + sampling.ByteSize() + 1000
    cost.check(most)

    cost.add_prompt(1, 1)
    with pytest.raises(InvalidRequest, match="bytes of parameters for each of 2 prompts"):
        cost.check(most)


def test_a_prompt_that_choices_repeat_counts_for_each_of_them() -> None:
    """A reply may be far larger than its request."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=500, repeats_prompt=True, streams=True)
    cost = RequestCost(request, request.sampling, MODEL)
    cost.add_prompt(1000, 1)
    size = REQUEST_BYTES + 500 * CHOICE_BYTES + 1000 * 40 + 500 * 1000 * 10

    cost.check(size)
    with pytest.raises(InvalidRequest, match="1000 prompt tokens that n=500 choices repeat") as caught:
        cost.check(size - 1)
    assert caught.value.param == "n"


def test_a_repeated_prompt_of_long_tokens_counts_by_its_text() -> None:
    """A token may be a hundred blanks; other prompts have fewer characters than their tokens count for."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=500, repeats_prompt=True, streams=True)
    sizes = []
    for chars in (0, 5_000, 100_000):
        cost = RequestCost(request, request.sampling, MODEL)
        cost.add_prompt(1_000, 1, chars)
        sizes.append(cost.size_bytes)

    assert sizes[0] == sizes[1]
    assert sizes[2] - sizes[0] == 500 * (2 * 100_000 - 10 * 1_000) + 2 * 100_000 - 40 * 1_000


def test_parsers_of_streamed_choices_count() -> None:
    """Each choice has its own; those of a reply that is not streamed are made one after the other."""
    sizes = []
    for streams, plan in ((True, ScriptedPlan([])), (True, None), (False, ScriptedPlan([])), (False, None)):
        request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=10, streams=streams, plan=plan)
        cost = RequestCost(request, request.sampling, MODEL)
        cost.add_prompt(1, 1)
        sizes.append(cost.size_bytes)

    assert (sizes[0] - sizes[1], sizes[2] - sizes[3]) == (10 * 32 * 1024, 0)


def test_many_choices_take_memory() -> None:
    """Also without a prompt worth mentioning."""
    cost = RequestCost(GenerationRequest("r", "digits", [], pb.SamplingParams(), n=1000), pb.SamplingParams(), MODEL)
    cost.add_prompt(1, 1)

    with pytest.raises(InvalidRequest, match="for 1000 choices") as caught:
        cost.check(1000 * CHOICE_BYTES)
    assert caught.value.param == "n"


def cost_of_four(params: pb.SamplingParams, streams: bool = False) -> RequestCost:
    """Return the cost of a request for four choices of a prompt of one token, and a reply of up to 5,000."""
    cost = RequestCost(GenerationRequest("r", "digits", [], params, n=4, streams=streams), params, MODEL)
    cost.add_prompt(1, 5000)
    return cost


def test_log_probabilities_of_a_reply_count_and_of_a_stream_those_of_a_token() -> None:
    """A reply that is not streamed is kept until its last choice has ended; a stream is bounded by its backlog."""
    with pytest.raises(InvalidRequest, match="21 log-probabilities of 20000 tokens of a reply") as caught:
        cost_of_four(pb.SamplingParams(logprobs=20, max_tokens=5000)).check(2**20)

    assert caught.value.param == "logprobs"
    cost_of_four(pb.SamplingParams(logprobs=20, max_tokens=5000), streams=True).check(2**20)
    with pytest.raises(InvalidRequest, match="5001 log-probabilities of 4 tokens of a reply"):
        cost_of_four(pb.SamplingParams(logprobs=5000, max_tokens=5000), streams=True).check(2**20)
    with pytest.raises(InvalidRequest, match="21 log-probabilities of 20000 tokens of a reply"):
        cost_of_four(pb.SamplingParams(logprob_token_ids=[1] * 20, max_tokens=5000)).check(2**20)


def test_each_token_of_a_reply_that_is_not_streamed_counts() -> None:
    """A client that streams has them already."""
    params = pb.SamplingParams(max_tokens=5000)
    cost_of_four(params, streams=True).check(2**16)
    cost_of_four(params).check(100 * 20_000 + 2**16)
    with pytest.raises(InvalidRequest, match="20000 tokens of a reply that is not streamed\\.") as caught:
        cost_of_four(params).check(100 * 20_000)

    assert caught.value.param == "max_tokens"


def test_a_reply_of_no_given_length_is_expected_to_be_short() -> None:
    """What the context allows would reject most requests that do not limit their replies."""
    params = pb.SamplingParams(logprobs=20)
    cost_of_four(params).check(4 * 4096 * (21 * 240 + 100) + 2**16)
    with pytest.raises(InvalidRequest, match="of 16384 tokens"):
        cost_of_four(params).check(4 * 4096 * (21 * 240 + 100))
    with pytest.raises(InvalidRequest, match="of 16384 tokens"):
        cost_of_four(pb.SamplingParams(logprobs=20, min_tokens=5)).check(2**20)
    with pytest.raises(InvalidRequest, match="of 18000 tokens"):
        cost_of_four(pb.SamplingParams(logprobs=20, min_tokens=4500)).check(2**20)
    with pytest.raises(InvalidRequest, match="not streamed and of which no max_tokens is named"):
        cost_of_four(pb.SamplingParams()).check(2**20)


@pytest.mark.parametrize(
    ("params", "claimed", "growth"),
    [
        (pb.SamplingParams(max_tokens=5000), 100 * 4 * 4096, (4 * 4096, 100)),
        (pb.SamplingParams(), 100 * 4 * 4096, (4 * 4096, 100)),
        (pb.SamplingParams(logprobs=1), 580 * 4 * 4096, (4 * 4096, 580)),
        (pb.SamplingParams(logprobs=1, max_tokens=5000), 580 * 4 * 5000, None),
    ],
)
def test_a_long_reply_claims_a_part_of_what_it_may_take(
    params: pb.SamplingParams, claimed: int, growth: tuple[int, int] | None
) -> None:
    """Most replies are far shorter than they may be. Log-probabilities whose number is known are claimed at once."""
    cost = cost_of_four(params)

    assert (cost.placed_bytes - cost.size_bytes, cost.growth) == (claimed, growth)


def test_a_short_reply_claims_all_that_it_may_take() -> None:
    """It never takes more."""
    cost = RequestCost(GenerationRequest("r", "digits", [], pb.SamplingParams()), pb.SamplingParams(), MODEL)
    cost.add_prompt(1, 4096)

    assert (cost.placed_bytes - cost.size_bytes, cost.growth) == (100 * 4096, None)


def test_many_tokens_may_take_more_than_they_claim() -> None:
    """Their texts may be long, which nobody knows before they come."""
    many = RequestCost(GenerationRequest("r", "digits", [], pb.SamplingParams(), n=5), pb.SamplingParams(), MODEL)
    many.add_prompt(1, 4096)

    assert many.growth == (5 * 4096, 100)


def test_a_reply_of_no_given_length_gets_what_its_request_may_take() -> None:
    """It ends there as one that has reached the end of the context: nobody named a length that it falls short of."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=2)
    cost = RequestCost(request, request.sampling, MODEL)
    for max_tokens in (30_000, 20_000):
        cost.add_prompt(1, max_tokens)

    assert cost.bounded([30_000, 20_000], cost.size_bytes + 100 * 2 * 2 * 25_000) == [25_000, 20_000]
    assert cost.bounded([30_000, 20_000], cost.size_bytes + 100 * 2 * 2 * 30_000) == [30_000, 20_000]


def test_a_length_that_was_named_is_not_changed() -> None:
    """The request fails instead, if it takes too much."""
    assert cost_of_four(pb.SamplingParams(max_tokens=5000)).bounded([5000], 2**17) == [5000]


def test_a_stream_does_not_grow() -> None:
    """Its client has what was generated."""
    assert cost_of_four(pb.SamplingParams(), streams=True).growth is None
