"""The differences that are meant: a name, when it applies, and why, in a sentence each. Everything else is a fault."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.compare import ABSENT, Difference
from tests.conformance.parity.consistency import AS_THEIRS
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


@dataclass(frozen=True)
class Explanation:
    """A difference that is meant."""

    name: str
    applies: Callable[[Request, str, Any, Any], bool]
    """On (request, path, ours, theirs); positions in the path are written as [n]."""
    reason: str


def _status_instead_of_event(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and theirs == f"{ours} as an event"


def _their_fault(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and str(ours).startswith("400 ") and str(theirs).startswith("500 ")


def _without_shape(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return (path, theirs) == ("error", ABSENT) or (path, ours) == ("error without a shape", ABSENT)


def _field_names(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("error.param") and (theirs is None or "same field" in path) and isinstance(ours, str)


def _repeated_values(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("error.message") and str(theirs).startswith(f"{ours} (parameter=")


def _wording(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    free = not any(part in str(theirs) for part in CLIENTS_MATCH)
    same = path == "error.message (same field)" or (path, theirs) == (
        "stream.errors[n].message",
        "Internal server error",
    )
    return same and free and "not supported" not in str(ours)


def _cached_tokens(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    caching = path.endswith(("prompt_tokens_details.cached_tokens", "prompt_tokens_details.created_cache_tokens"))
    return caching and isinstance(ours, int) and isinstance(theirs, int)


def _as_theirs(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("self.") and path.endswith(AS_THEIRS)


def _empty_keys(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("stream.keys.") and ABSENT in (ours, theirs) and "null" in (ours, theirs)


EXPLANATIONS = (
    Explanation(
        "a status instead of an event",
        _status_instead_of_event,
        "An error before the first token is an HTTP status, so that clients can retry by it; vLLM has answered 200.",
    ),
    Explanation(
        "a 400 instead of a 500",
        _their_fault,
        "Some wrong values make vLLM fail with an error of Python's; the fault is the request's, and a 400 says so.",
    ),
    Explanation(
        "errors have one shape",
        _without_shape,
        "vLLM answers a body that is not UTF-8 with FastAPI's own error; here every error has OpenAI's shape.",
    ),
    Explanation(
        "names of fields",
        _field_names,
        "`param` names the field; vLLM names it body.FIELD, with pydantic's path into it, or not at all.",
    ),
    Explanation(
        "values repeated in messages",
        _repeated_values,
        "vLLM appends the parameter and its value to the message; the parameter has a place of its own.",
    ),
    Explanation(
        "other words",
        _wording,
        "The message says the same of the same field without pydantic's list of errors; messages that known clients "
        "look into are the same.",
    ),
    Explanation(
        "tokens found in the cache",
        _cached_tokens,
        "What is cached depends on what either server was asked before.",
    ),
    Explanation(
        "parsers that differ by form",
        _as_theirs,
        "Some of vLLM's parsers find other things in a stream than in the whole reply; they are used as they are.",
    ),
    Explanation(
        "keys without a value",
        _empty_keys,
        "Which keys of a chunk are null or left out differs: no client can tell, and a chunk has fewer bytes.",
    ),
)


def explain(request: Request, difference: Difference) -> Explanation | None:
    """Return why a difference is meant, if it is."""
    path = re.sub(r"\[\d+\]", "[n]", difference.path)
    for explanation in EXPLANATIONS:
        if explanation.applies(request, path, difference.ours, difference.theirs):
            return explanation
    return None
