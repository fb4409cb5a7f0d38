"""What a request may use of its key's tokens per minute: at most all of them, and reserved before it runs."""

from collections.abc import Sequence

from tokenwire.coordinator.generation.limits import check_min_tokens
from tokenwire.coordinator.types import GenerationRequest
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

UNSTATED_REPLY_TOKENS = 4096
"""Reserved at most for a reply without `max_tokens`: about what an engine generates of one in a minute. The context
that is left, which is its only bound, would let few such requests of a key run at a time."""


def fit_quota(
    request: GenerationRequest,
    sampling: pb.SamplingParams,
    prompt_tokens: int,
    max_tokens: Sequence[int],
    tokens_per_minute: int,
) -> tuple[Sequence[int], int]:
    """Return the maximum tokens of a reply to each prompt within a quota, and how many tokens to reserve.

    A request never gets more than a minute's tokens: one that asks for more raises InvalidRequest, and replies without
    `max_tokens` are bounded by what is left of them.
    """
    if sampling.HasField("max_tokens"):
        tokens = prompt_tokens + request.n * sum(max_tokens)
        if tokens > tokens_per_minute:
            raise _too_large(request, prompt_tokens, f"up to {tokens}", tokens_per_minute)
        return max_tokens, tokens
    each = (tokens_per_minute - prompt_tokens) // (request.n * len(max_tokens))
    if each < 1:
        raise _too_large(request, prompt_tokens, "more", tokens_per_minute)
    bounded = [min(tokens, each) for tokens in max_tokens]
    check_min_tokens(sampling.min_tokens, min(bounded))
    return bounded, prompt_tokens + request.n * sum(min(tokens, UNSTATED_REPLY_TOKENS) for tokens in bounded)


def _too_large(request: GenerationRequest, prompt_tokens: int, needed: str, tokens_per_minute: int) -> InvalidRequest:
    return InvalidRequest(
        f"This API key has {tokens_per_minute} tokens per minute, and the request may use {needed}: {prompt_tokens} of "
        f"its prompts, and its replies' maximum times n={request.n}. Please request fewer tokens.",
        param=request.max_tokens_param or "max_tokens",
    )
