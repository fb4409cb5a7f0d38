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


def _too_long(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    both = all(re.search("longer than the maximum|maximum context length", str(message)) for message in (ours, theirs))
    return path.startswith("error.message") and both and "longer than the maximum model length of" in str(ours)


def _cached_tokens(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    caching = path.endswith(("prompt_tokens_details.cached_tokens", "prompt_tokens_details.created_cache_tokens"))
    return caching and isinstance(ours, int) and isinstance(theirs, int)


def _as_theirs(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("self.") and path.endswith(AS_THEIRS)


def _beams(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    asked = request.field("use_beam_search") is True
    refused = str(ours).startswith("400 use_beam_search:") or path.startswith("error.")
    return asked and refused


def _full_context(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    by_message = path == "error.message" and str(theirs).startswith("max_tokens must be at least 1, got 0.")
    by_param = path == "error.param" and (ours, theirs) == ("input_tokens", "max_tokens")
    return by_param or (by_message and "longer than the maximum model length" in str(ours))


def _lenient_parts(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and ours == "200 an answer" and "for ValidatorIterator" in str(theirs)


def _embeddings(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("error.message") and ours == "`prompt_embeds` is not supported."


def _several_errors(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    if "same field" in path:
        return False
    if request.name.startswith("malformed/several"):
        return path in ("error.message", "error.param")
    # vLLM looks at these two before it looks at any type.
    first = request.streamed and bool(request.field("prompt_logprobs"))
    return first and (
        (path == "error.message" and str(theirs).startswith("`prompt_logprobs` are not available"))
        or (path, theirs) in (("error.param", "prompt_logprobs"), ("error.type", "BadRequestError"))
    )


def _beyond_the_wire(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and "is out of range" in str(ours) and theirs == "200 an answer"


def _types_by_hand(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    ids = bool(request.field("logprob_token_ids"))
    choice = bool(request.field("tools")) and not isinstance(request.field("tool_choice"), str | dict | None)
    return (path, ours, theirs) == ("error.type", "Bad Request", "BadRequestError") and (ids or choice)


def _grammars(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    if path == "error.param (same field)":
        return ours is None and theirs in ("structured_outputs", "response_format")
    none_given = "structured outputs constraint but none are specified: "
    return path == "error.message" and none_given in str(ours) and none_given in str(theirs)


def _engines_words(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    words = str(theirs).partition("500 ")[2].removeprefix("as an event ")
    return path == "status" and words == "None: Internal server error" and str(ours).startswith("500 ")


def _empty_keys(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    if path.startswith("stream.usage."):
        return (ours, theirs) == (ABSENT, None)
    return path.startswith("stream.keys.") and ABSENT in (ours, theirs) and "null" in (ours, theirs)


def _token_history(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return "token_history" in path and theirs == ABSENT


def _weight_versions(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.endswith("weight_versions") and theirs == ABSENT and bool(request.field("return_token_ids"))


EXPLANATIONS = (
    Explanation(
        "weights of ids",
        _weight_versions,
        "Who asks for ids also hears which weights made them, as on vLLM's /inference/v1/generate.",
    ),
    Explanation(
        "ids of earlier turns",
        _token_history,
        "Chats that ask for ids, or name a session, say how much of the prompt are ids of earlier turns.",
    ),
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
        "prompts that are too long",
        _too_long,
        "One message on every route, with the phrases of each client that looks for one; vLLM's own has some of them.",
    ),
    Explanation(
        "tokens found in the cache",
        _cached_tokens,
        "What is cached depends on what either server was asked before.",
    ),
    Explanation(
        "beam search",
        _beams,
        "Refused by name: it searches whole sequences in front of the engine, many requests for one, never streamed.",
    ),
    Explanation(
        "a prompt that fills the context",
        _full_context,
        "vLLM complains of a max_tokens that nobody sent; here the message names the prompt, and how long it is.",
    ),
    Explanation(
        "parts of content that lack their text",
        _lenient_parts,
        "vLLM refuses some of them, and strings as parts, when they are asked for in one form and not in another.",
    ),
    Explanation(
        "embeddings of prompts",
        _embeddings,
        "Not supported, whatever the worker's options are: the words do not name one.",
    ),
    Explanation(
        "the first of several errors",
        _several_errors,
        "`param` names the first field that is wrong; which one that is depends on the order of checks.",
    ),
    Explanation(
        "numbers without a use",
        _beyond_the_wire,
        "A top_k of more than 32 bits is refused, also where nothing is sampled and vLLM does not look at it.",
    ),
    Explanation(
        "types that are looked at first",
        _types_by_hand,
        "vLLM reads logprob_token_ids, and tool_choice beside tools, before it looks at types: a wrong type is a wrong "
        "value then.",
    ),
    Explanation(
        "grammars that no engine takes",
        _grammars,
        "vLLM's HTTP server compiles some grammars to check them; here the engine says what is wrong.",
    ),
    Explanation(
        "what an engine says of its own faults",
        _engines_words,
        "An error of the engine says that it was the engine's.",
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
