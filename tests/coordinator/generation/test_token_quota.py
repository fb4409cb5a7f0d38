"""What requests may use and reserve of their key's tokens per minute."""

import pytest

from tests.coordinator.fakes import request_context, served_model, token_history
from tests.coordinator.generation.fakes import FakeFleet
from tests.coordinator.generation.test_service import request_for
from tokenwire.coordinator.auth.caller import Caller
from tokenwire.coordinator.auth.rate_limit import Account, Limits
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.generation.token_quota import UNSTATED_REPLY_TOKENS, fit_quota
from tokenwire.coordinator.output.collect import CollectedReply
from tokenwire.coordinator.types import TokenPrompt
from tokenwire.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unavailable
from tokenwire.v1 import inference_pb2 as pb

CONTEXT_LEFT = 100_000
PROMPT = TokenPrompt([1])


def test_a_request_reserves_its_prompts_and_all_its_replies() -> None:
    """Each prompt has n of them."""
    request = request_for(PROMPT, PROMPT, n=3)
    sampling = pb.SamplingParams(max_tokens=50)

    assert fit_quota(request, sampling, 20, [50, 40], 290) == ([50, 40], 290)


def test_a_request_for_more_than_a_minutes_tokens_is_rejected() -> None:
    """It could never run without going beyond the limit; the error says what it asked for and what there is."""
    request = request_for(PROMPT, n=100)

    with pytest.raises(InvalidRequest, match=r"has 1000 tokens per minute, .* up to 100001: 1 of .* n=100") as rejected:
        fit_quota(request, pb.SamplingParams(max_tokens=1000), 1, [1000], 1000)
    assert rejected.value.param == "max_tokens"


def test_replies_without_a_maximum_are_bounded_by_a_minutes_tokens() -> None:
    """All of a request together, so that n cannot multiply them; the reservation is the whole bound."""
    assert fit_quota(request_for(PROMPT, n=4), pb.SamplingParams(), 200, [CONTEXT_LEFT], 1000) == ([200], 1000)


@pytest.mark.parametrize(
    ("tokens_per_minute", "least", "each"),
    [
        (400_000, 0, 50_000),
        (10_000, 0, UNSTATED_REPLY_TOKENS),
        (10_000_000, 0, CONTEXT_LEFT),
        (400_000, 60_000, 60_000),
    ],
)
def test_replies_without_a_maximum_get_what_they_reserve(tokens_per_minute: int, least: int, each: int) -> None:
    """An eighth of the quota, so that several of a key run at a time and never get more than it together."""
    sampling = pb.SamplingParams(min_tokens=least)

    found = fit_quota(request_for(PROMPT, n=2), sampling, 10, [CONTEXT_LEFT], tokens_per_minute)

    assert found == ([each], 10 + 2 * each)


def test_prompts_that_leave_no_token_for_a_reply_are_rejected() -> None:
    """They alone are a minute's tokens."""
    with pytest.raises(InvalidRequest, match="may use more: 999 of its prompts"):
        fit_quota(request_for(PROMPT, n=2), pb.SamplingParams(), 999, [CONTEXT_LEFT], 1000)


def test_a_minimum_beyond_the_quota_is_rejected() -> None:
    """An engine would fail on a minimum above the maximum."""
    with pytest.raises(InvalidRequest, match="min_tokens must be less than or equal to max_tokens=800"):
        fit_quota(request_for(PROMPT), pb.SamplingParams(min_tokens=900), 200, [CONTEXT_LEFT], 1000)


def limited_caller(tokens_per_minute: int) -> Caller:
    """Return a caller with so many tokens per minute."""
    return Caller("t", account=Account("t", Limits(tokens_per_minute=tokens_per_minute)))


def tokens_left(caller: Caller) -> int:
    """Return the tokens that a caller may still reserve."""
    assert caller.account is not None
    return caller.account.buckets()["tokens"].available


async def test_a_request_reserves_tokens_until_it_ends() -> None:
    """Its prompt and the maximum of its replies; a second one waits for them."""
    fleet, caller = FakeFleet(), limited_caller(100)
    generation = GenerationService(fleet, token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1]), n=4, max_tokens=15), served_model())

    handle = await generation.start(prepared, CollectedReply(4), request_context(caller=caller))
    assert 39 <= tokens_left(caller) <= 40
    with pytest.raises(Overloaded, match="The request may use 61, and"):
        await generation.start(prepared, CollectedReply(4), request_context(caller=caller))
    assert len(fleet.parts) == 1

    handle.settle(11)
    assert tokens_left(caller) >= 89


async def test_a_request_cannot_use_more_than_its_quota() -> None:
    """Without a maximum of its own its replies are shorter; else it is rejected."""
    fleet, caller = FakeFleet(), limited_caller(9)
    generation = GenerationService(fleet, token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1]), n=2), served_model())
    await generation.start(prepared, CollectedReply(2), request_context(caller=caller))
    assert fleet.parts[0].submission.max_tokens == 4

    prepared = await generation.prepare(request_for(TokenPrompt([1]), n=2, max_tokens=5), served_model())
    with pytest.raises(InvalidRequest, match="has 9 tokens per minute, and the request may use up to 11"):
        await generation.start(prepared, CollectedReply(2), request_context(caller=caller))


@pytest.mark.parametrize("late", [False, True])
async def test_a_request_that_is_not_submitted_gives_its_tokens_back(late: bool) -> None:
    """Because no worker takes it, or its deadline has passed."""
    caller = limited_caller(100)
    generation = GenerationService(FakeFleet(capacity=1), token_history())
    prepared = await generation.prepare(request_for(TokenPrompt([1]), TokenPrompt([2]), max_tokens=9), served_model())
    context = request_context(caller=caller)
    context.deadline = context.clock() if late else None

    with pytest.raises(DeadlineExceeded if late else Unavailable):
        await generation.start(prepared, CollectedReply(2), context)

    assert tokens_left(caller) == 100
