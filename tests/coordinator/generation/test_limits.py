"""Limits: what is rejected without involving a worker."""

from typing import Any

import pytest

from tests.coordinator.fakes import served_model
from tokenwire.coordinator.generation import limits
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
