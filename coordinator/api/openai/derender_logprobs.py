"""Log-probabilities of ids in the formats of chat and completions."""

from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.coordinator.api.openai.derender_request import CONTEXT_TOKENS, GivenPosition, GivenScore
from tokenwire.coordinator.text.logprobs import TokenTexts


def chat_scores(
    scores: Sequence[GivenPosition] | None, texts: TokenTexts, before: Sequence[int] = (), most: int | None = None
) -> dict[str, Any] | None:
    """Return chat's logprobs object.

    before: the last tokens of the choice before these. most: the most tokens of a position, beside its own; None: all.
    """
    if scores is None:
        return None
    context, content = list(before), []
    for position in scores:
        tops = [_scored(top, texts, context) for top in position.top_logprobs[:most]]
        content.append({**_scored(position, texts, context), "top_logprobs": tops})
        context = [*context[1 - CONTEXT_TOKENS :], position.token_id]
    return {"content": content}


def most_shown(request: ChatCompletionRequest | None) -> int | None:
    """Return how many tokens of a position a chat is to show; None: all."""
    if request is None or request.wanted_logprobs is None or request.logprob_token_ids:
        return None
    return None if request.wanted_logprobs == -1 else request.wanted_logprobs


def _scored(score: GivenScore, texts: TokenTexts, before: Sequence[int]) -> dict[str, Any]:
    text = texts.text_after(score.token_id, before)
    return {"token": text, "logprob": score.logprob, "bytes": list(text.encode("utf-8", errors="replace"))}


def completion_scores(
    scores: Sequence[GivenPosition] | None, texts: TokenTexts, before: Sequence[int] = (), offset: int = 0
) -> dict[str, Any] | None:
    """Return completions' logprobs object. offset: characters of the choice before these tokens."""
    chat = chat_scores(scores, texts, before)
    if chat is None:
        return None
    content, offsets = chat["content"], []
    for position in content:
        offsets.append(offset)
        offset += len(position["token"])
    return {
        "text_offset": offsets,
        "token_logprobs": [position["logprob"] for position in content],
        "tokens": [position["token"] for position in content],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in position["top_logprobs"]} or None for position in content
        ],
    }
