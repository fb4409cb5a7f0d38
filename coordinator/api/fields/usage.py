"""OpenAI's usage object."""

from typing import Any

from tokenwire.coordinator.types import Usage


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return it for streams, with details only if there are any."""
    shown: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        shown["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
        if usage.created_cache_tokens is not None:
            shown["prompt_tokens_details"]["created_cache_tokens"] = usage.created_cache_tokens
        if usage.multimodal_tokens is not None:
            shown["prompt_tokens_details"]["multimodal_tokens"] = usage.multimodal_tokens
    if usage.reasoning_tokens is not None:
        shown["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return shown


def full_usage_object(usage: Usage) -> dict[str, Any]:
    """Return it for full responses, with all of vLLM's fields, null if unknown."""
    shown = {"prompt_tokens_details": None, "completion_tokens_details": None, **usage_object(usage)}
    if usage.cached_tokens is not None:
        nothing = {"created_cache_tokens": None, "multimodal_tokens": None}
        shown["prompt_tokens_details"] = {**nothing, **shown["prompt_tokens_details"]}
    return shown
