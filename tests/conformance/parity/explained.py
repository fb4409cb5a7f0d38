"""The differences that are meant: a name, when it applies, and why, in a sentence each. Everything else is a fault."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.compare import ABSENT, Difference
from tests.conformance.parity.request import Request

CLIENTS_MATCH = (
    "maximum context length",
    "context length",
    "reduce the length",
    "longer than the maximum",
    "does not exist",
    "too long",
)
"""Parts of messages that known clients look for: such a message has to be the same."""

_BLOCK = 128
"""Prompt tokens that vLLM caches together on a CPU."""


@dataclass(frozen=True)
class Explanation:
    """A difference that is meant."""

    name: str
    applies: Callable[[Request, str, Any, Any], bool]
    """On (request, path, ours, theirs); positions in the path are written as [n]."""
    reason: str


def _status_instead_of_event(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and theirs == f"{ours} as an event"


def _reworded_validation(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "error.message" and bool(re.match(r"\d+ validation errors?:\n", str(theirs))) and _free(theirs)


def _without_suffix(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "error.message" and re.sub(r" \(parameter=.*\)$", "", str(theirs), flags=re.DOTALL) == ours


def _free(message: Any) -> bool:
    return not any(part in str(message) for part in CLIENTS_MATCH)


def _param_of_body(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "error.param" and isinstance(theirs, str) and theirs == f"body.{ours}"


def _cached_tokens(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    caching = path.endswith(("prompt_tokens_details.cached_tokens", "prompt_tokens_details.created_cache_tokens"))
    return caching and isinstance(ours, int) and isinstance(theirs, int)


def _null_keys(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("stream.keys.") and ours != ABSENT and theirs != ABSENT


EXPLANATIONS = (
    Explanation(
        "a status instead of an event",
        _status_instead_of_event,
        "An error before the first token is an HTTP status, so that clients can retry by it; vLLM has answered 200.",
    ),
    Explanation(
        "wording of validation errors",
        _reworded_validation,
        "vLLM prints pydantic's list of errors; the message names the field and what is wrong with it.",
    ),
    Explanation(
        "values repeated in messages",
        _without_suffix,
        "vLLM appends the parameter and its value to the message; the parameter has a field of its own.",
    ),
    Explanation(
        "names of fields in errors",
        _param_of_body,
        "vLLM writes body.NAME where pydantic found the error and NAME where it did itself; here it is NAME.",
    ),
    Explanation(
        "tokens found in the cache",
        _cached_tokens,
        "What is cached depends on what either server was asked before.",
    ),
)


def explain(request: Request, difference: Difference) -> Explanation | None:
    """Return why a difference is meant, if it is."""
    path = re.sub(r"\[\d+\]", "[n]", difference.path)
    for explanation in EXPLANATIONS:
        if explanation.applies(request, path, difference.ours, difference.theirs):
            return explanation
    return None
