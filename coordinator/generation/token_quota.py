"""What a request may use of its key's tokens per minute: at most all of them, and reserved before it runs."""

from collections.abc import Sequence

from tokenwire.coordinator.generation.limits import check_min_tokens
from tokenwire.coordinator.types import GenerationRequest
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

UNSTATED_REPLY_TOKENS = 4096
UNSTATED_REPLIES = 8
"""A reply without `max_tokens` gets so many tokens, or an eighth of a minute's if that is more. The context that is
left would let one such request of a key run at a time, and whatever is not reserved would be beyond the limit."""


def fit_quota(
    request: GenerationRequest,
    sampling: pb.SamplingParams,
    prompt_tokens: int,
    max_tokens: Sequence[int],
    tokens_per_minute: int,
) -> tuple[Sequence[int], int]:
    """Return the maximum tokens of a reply to each prompt within a quota, and how many tokens to reserve.

    A request never gets more than a minute's tokens, nor more than it reserves: one that asks for more raises
    InvalidRequest, and replies without `max_tokens` are bounded.
    """
    if sampling.HasField("max_tokens"):
        tokens = prompt_tokens + request.n * sum(max_tokens)
        if tokens > tokens_per_minute:
            raise _too_large(request, prompt_tokens, f"up to {tokens}", tokens_per_minute)
        return max_tokens, tokens
    each = (tokens_per_minute - prompt_tokens) // (request.n * len(max_tokens))
    if each < 1:
        raise _too_large(request, prompt_tokens, "more", tokens_per_minute)
    each = min(each, max(UNSTATED_REPLY_TOKENS, tokens_per_minute // UNSTATED_REPLIES, sampling.min_tokens))
    bounded = [min(tokens, each) for tokens in max_tokens]
    check_min_tokens(sampling.min_tokens, min(bounded))
    return bounded, prompt_tokens + request.n * sum(bounded)


def _too_large(request: GenerationRequest, prompt_tokens: int, needed: str, tokens_per_minute: int) -> InvalidRequest:
    return InvalidRequest(
        f"This API key has {tokens_per_minute} tokens per minute, and the request may use {needed}: {prompt_tokens} of "
        f"its prompts, and its replies' maximum times n={request.n}. Please request fewer tokens, or "
        "raise its `tokens_per_minute` in --api-keys-file.",
        param=request.max_tokens_param or "max_tokens",
    )
