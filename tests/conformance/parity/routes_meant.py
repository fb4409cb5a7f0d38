"""Deliberate differences of routes other than chat and completions: fields with the values of both sides."""

from typing import Any

from tests.conformance.parity.compare import ABSENT
from tests.conformance.parity.request import GENERATE, MESSAGES, RESPONSES, Request

_ANTHROPIC_TYPES = {400: "invalid_request_error", 404: "not_found_error"}
# By the end of the path in a response: ours, theirs.
_RESPONSE: dict[str, tuple[Any, Any]] = {
    "completed_at": ("int", ABSENT),
    "error": (None, ABSENT),
    "prompt_cache_key": (None, ABSENT),
    "safety_identifier": (None, ABSENT),
    "store": (False, ABSENT),
    "metadata": ({}, None),
    "logprobs": ([], None),
    "phase": (ABSENT, None),
    "prompt": (ABSENT, None),
    "kv_transfer_params": (ABSENT, None),
    "ec_transfer_params": (ABSENT, None),
    "input_messages": (ABSENT, None),
    "output_messages": (ABSENT, None),
    "reasoning": ({"effort": None, "summary": None}, None),
    "service_tier": ("default", "auto"),
    "text": ({"format": {"type": "text"}}, None),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0, None),
    "cached_tokens_per_turn": (ABSENT, []),
    "input_tokens_per_turn": (ABSENT, []),
    "output_tokens_per_turn": (ABSENT, []),
    "tool_output_tokens": (ABSENT, 0),
    "tool_output_tokens_per_turn": (ABSENT, []),
}
# By the end of the path in a message.
_MESSAGE: dict[str, tuple[Any, Any]] = {
    "id": ("msg", "chatcmpl"),
    "stop_sequence": (None, ABSENT),
}
_CUT: dict[str, tuple[Any, Any]] = {
    "status": ("incomplete", "completed"),
    "type": ("response.incomplete", "response.completed"),
    "incomplete_details": ({"reason": "max_output_tokens"}, None),
    "completed_at": (ABSENT, "int"),
}


def fields_of_responses(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """The object has every field of OpenAI's, and none of vLLM's own."""
    return request.path == RESPONSES and _RESPONSE.get(path.rpartition(".")[2]) == (ours, theirs)


def cut_responses(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """A truncated reply is incomplete, and so is its last item."""
    return request.path == RESPONSES and _CUT.get(path.rpartition(".")[2]) == (ours, theirs)


def logprobs_of_responses(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """Every token has its log-probability and its bytes."""
    if request.path != RESPONSES or not request.streamed or "logprobs" not in path:
        return False
    return theirs == ABSENT or (path.endswith("logprobs.length") and ours > theirs)


def names_of_ids(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """Log-probabilities of ids also have the names of older versions."""
    if request.path != GENERATE or "logprobs.content" not in path or theirs != ABSENT:
        return False
    name = path.rpartition(".")[2]
    return (name == "token" and str(ours).startswith("token_id:")) or (name == "bytes" and ours is None)


def fields_of_messages(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """The object has Anthropic's ids and fields."""
    if request.path != MESSAGES:
        return False
    counts = ("message.usage.cache_read_input_tokens", "message.usage.cache_creation_input_tokens")
    caching = path.endswith(counts) and (ours, theirs) == (0, ABSENT)
    return caching or _MESSAGE.get(path.rpartition(".")[2]) == (ours, theirs)


def errors_of_messages(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    """All errors have Anthropic's format and types."""
    if request.path != MESSAGES or path != "kind":
        return False
    status, _, kind = str(ours).partition(" error ")
    return str(theirs).startswith(f"{status} ") and kind == _ANTHROPIC_TYPES.get(int(status))
