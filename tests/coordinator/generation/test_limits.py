"""Limits: what is rejected without involving a worker."""

from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.generation import limits
from tokenwire.coordinator.output.choice import MOST_DECODED
from tokenwire.coordinator.text.detokenizer import TextRules
from tokenwire.coordinator.types import GenerationRequest
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

MODEL = served_model(max_model_len=10)
DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0}


def request_with_defaults(n: int = 1, stop: tuple[str, ...] = (), **sampling: Any) -> GenerationRequest:
    """Return a request with defaults filled in."""
    params = pb.SamplingParams(**{**DEFAULTS, **sampling})
    return GenerationRequest("r", "digits", [], params, n=n, text=TextRules(stop=stop))


def check(request: GenerationRequest) -> None:
    """Check a request with its own sampling parameters."""
    limits.check_request(request, request.sampling, MODEL)


def test_ordinary_requests_pass() -> None:
    """The limits are inclusive."""
    check(request_with_defaults(temperature=2.0, top_k=-1, min_p=1.0, max_tokens=10, stop_token_ids=[0, 9]))
    check(request_with_defaults(stop=("a" * 4096,) * 4))
    check(request_with_defaults(stop=("a" * 128,) * 128))
    check(request_with_defaults(n=limits.MAX_N))
    check(request_with_defaults(n=2, seed=2**63 - 2))
    check(request_with_defaults(seed=2**63 - 1))
    limits.check_length(9, MODEL)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        (request_with_defaults(n=0), "n"),
        (request_with_defaults(n=limits.MAX_N + 1), "n"),
        (request_with_defaults(n=2, temperature=0.0), "n"),
        (request_with_defaults(n=2, seed=2**63 - 1), "seed"),
        (request_with_defaults(stop=("a", "")), "stop"),
        (request_with_defaults(max_tokens=11), "max_tokens"),
        (request_with_defaults(temperature=2.1), "temperature"),
        (request_with_defaults(temperature=float("nan")), "temperature"),
        (request_with_defaults(temperature=-0.1), "temperature"),
        (request_with_defaults(top_p=0.0), "top_p"),
        (request_with_defaults(top_k=-2), "top_k"),
        (request_with_defaults(min_p=1.5), "min_p"),
        (request_with_defaults(presence_penalty=2.5), "presence_penalty"),
        (request_with_defaults(frequency_penalty=float("nan")), "frequency_penalty"),
        (request_with_defaults(repetition_penalty=0.0), "repetition_penalty"),
        (request_with_defaults(repetition_penalty=float("inf")), "repetition_penalty"),
        (request_with_defaults(stop_token_ids=[10]), "stop_token_ids"),
        (request_with_defaults(allowed_token_ids=[10]), "allowed_token_ids"),
        (request_with_defaults(logit_bias={10: 1.0}), "logit_bias"),
        (request_with_defaults(logit_bias=dict.fromkeys(range(10_001), 1.0)), "logit_bias"),
        (request_with_defaults(stop_token_ids=[1] * 1025), "stop_token_ids"),
        (request_with_defaults(logprob_token_ids=[1] * 129), "logprob_token_ids"),
        (request_with_defaults(trace_decode_token_ids=[1] * 11), "trace_decode_token_ids"),
        (request_with_defaults(bad_words=["a"] * 129), "bad_words"),
        (request_with_defaults(bad_words=["a" * 1025]), "bad_words"),
        (request_with_defaults(stop=("a" * 4097,)), "stop"),
        (request_with_defaults(stop=(*("a" * 4096,) * 4, "a")), "stop"),
        (request_with_defaults(stop=("a" * 129,) * 128), "stop"),
        (
            request_with_defaults(structured_outputs=pb.StructuredOutputs(regex="a{1,100001}")),
            "structured_outputs.regex",
        ),
    ],
)
def test_wrong_parameters_are_named(wrong: GenerationRequest, param: str) -> None:
    """The first wrong parameter is in the error."""
    with pytest.raises(InvalidRequest) as caught:
        check(wrong)

    assert caught.value.param == param


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (request_with_defaults(stop=("a" * 4097,)), "A stop string has 4097 characters, more than 4096"),
        (request_with_defaults(stop=("a" * 129,) * 128), "have 16512 characters together, more than 16384"),
        (request_with_defaults(bad_words=["a", "a" * 1025]), "A bad word has 1025 characters, more than 1024"),
    ],
)
def test_a_limit_is_named_with_what_was_given(wrong: GenerationRequest, words: str) -> None:
    """So that the client knows how much is too much."""
    with pytest.raises(InvalidRequest, match=words):
        check(wrong)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "cannot be empty"),
        ([0] * 10, "maximum context length is 10 tokens.*needs at least 1 more"),
        ([0] * 11, "maximum context length is 10"),
        ([0, 10], "Token id 10 is out of vocabulary"),
        ([-1, 0], "Token id -1 is out of vocabulary"),
    ],
)
def test_wrong_prompts_are_named(prompt: list[int], words: str) -> None:
    """Empty, too long, without space for one token, or out of vocabulary."""

    def check() -> None:
        limits.check_length(len(prompt), MODEL)
        limits.check_ids(prompt, MODEL, "prompt")

    with pytest.raises(InvalidRequest, match=words):
        check()


@pytest.mark.parametrize(
    ("requested", "default", "expected"), [(None, None, 7), (3, None, 3), (9, None, 7), (None, 4, 4), (5, 4, 5)]
)
def test_max_tokens_is_limited_by_the_context(requested: int | None, default: int | None, expected: int) -> None:
    """The request's limit, else the generation config's, else the remaining context; never more than that."""
    model = served_model(10, {"max_tokens": default} if default else None)

    assert limits.resolve_max_tokens(pb.SamplingParams(max_tokens=requested), 3, model) == expected


def test_min_tokens_must_be_reachable() -> None:
    """A minimum above the maximum is an error."""
    limits.check_min_tokens(4, 4)
    with pytest.raises(InvalidRequest, match="max_tokens=3"):
        limits.check_min_tokens(4, 3)


REQUEST_BYTES, CHOICE_BYTES = 26 * 1024, 1536


@pytest.mark.parametrize(("requested", "each"), [(0, 1), (3, 4), (-1, 10)])
def test_log_probabilities_of_prompts_are_counted_for_every_choice(requested: int, each: int) -> None:
    """Each token has its own and the most likely ones, -1: the vocabulary. The error names the option."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=5)
    sampling = pb.SamplingParams(prompt_logprobs=requested)
    cost = limits.RequestCost(request, sampling, MODEL)
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
        cost = limits.RequestCost(GenerationRequest("r", "digits", [], sampling), sampling, MODEL)
        cost.add_prompt(tokens, 1)
        sizes.append(cost.size_bytes - 40 * tokens)

    assert sizes[1] - sizes[0] == 64 * MOST_DECODED
    assert 240 * MOST_DECODED < sizes[0] < 241 * MOST_DECODED + REQUEST_BYTES


def test_texts_of_which_most_is_cut_off_count() -> None:
    """They are kept with the request; others have fewer characters than their tokens count for."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams())
    cut, whole = (limits.RequestCost(request, request.sampling, MODEL) for _ in range(2))
    cut.add_prompt(10, 1, 1_000_000)
    whole.add_prompt(10, 1, 50)

    assert cut.placed_bytes - whole.placed_bytes == 2 * 1_000_000 - 40 * 10
    with pytest.raises(InvalidRequest, match="10 prompt tokens with their text"):
        cut.check(10**6)


def test_parameters_count_once_for_each_prompt() -> None:
    """Each prompt is sent to a worker with a copy of them."""
    sampling = pb.SamplingParams(allowed_token_ids=[1] * 10_000)
    cost = limits.RequestCost(GenerationRequest("r", "digits", [], sampling), sampling, MODEL)
    cost.add_prompt(1, 1)
    most = REQUEST_BYTES + CHOICE_BYTES + sampling.ByteSize() + 1000
    cost.check(most)

    cost.add_prompt(1, 1)
    with pytest.raises(InvalidRequest, match="bytes of parameters for each of 2 prompts"):
        cost.check(most)


def test_a_prompt_that_choices_repeat_counts_for_each_of_them() -> None:
    """A reply may be far larger than its request."""
    request = GenerationRequest("r", "digits", [], pb.SamplingParams(), n=500, repeats_prompt=True)
    cost = limits.RequestCost(request, request.sampling, MODEL)
    cost.add_prompt(1000, 1)
    size = REQUEST_BYTES + 500 * CHOICE_BYTES + 1000 * 40 + 500 * 1000 * 10

    cost.check(size)
    with pytest.raises(InvalidRequest, match="1000 prompt tokens that n=500 choices repeat") as caught:
        cost.check(size - 1)
    assert caught.value.param == "n"


def test_many_choices_take_memory() -> None:
    """Also without a prompt worth mentioning."""
    cost = limits.RequestCost(
        GenerationRequest("r", "digits", [], pb.SamplingParams(), n=1000), pb.SamplingParams(), MODEL
    )
    cost.add_prompt(1, 1)

    with pytest.raises(InvalidRequest, match="for 1000 choices") as caught:
        cost.check(1000 * CHOICE_BYTES)
    assert caught.value.param == "n"


def cost_of_four(params: pb.SamplingParams, streams: bool = False) -> limits.RequestCost:
    """Return the cost of a request for four choices of a prompt of one token, and a reply of up to 5,000."""
    cost = limits.RequestCost(GenerationRequest("r", "digits", [], params, n=4, streams=streams), params, MODEL)
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
    cost_of_four(pb.SamplingParams(max_tokens=5000)).check(2**20)


def test_a_reply_of_no_given_length_is_expected_to_be_short() -> None:
    """What the context allows would reject most requests that do not limit their replies."""
    cost_of_four(pb.SamplingParams(logprobs=20)).check(4 * 1024 * 21 * 240 + 2**20)
    with pytest.raises(InvalidRequest, match="of 4096 tokens"):
        cost_of_four(pb.SamplingParams(logprobs=20)).check(2**20)
