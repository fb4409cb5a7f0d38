"""The differences that are meant: a name, when it applies, and why, in a sentence each. Everything else is a fault."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.compare import ABSENT, TRANSLATED, Difference
from tests.conformance.parity.consistency import AS_THEIRS
from tests.conformance.parity.errors_meant import (
    BEAMS,
    BROKEN,
    ENGINE,
    GRAMMARS,
    SEVERAL,
    TOO_LONG,
    TYPES_FIRST,
    WORDS,
    Error,
    Pair,
    is_one_of,
    names_the_field,
    says_less_of_types,
)
from tests.conformance.parity.request import Request
from tests.conformance.parity.routes_meant import (
    cut_responses,
    errors_of_messages,
    fields_of_messages,
    fields_of_responses,
    logprobs_of_responses,
    names_of_ids,
)
from tests.conformance.parity.wording import places

_BATCH_CHARS = 64
"""How far text may be behind its ids where a parser reads it."""


@dataclass(frozen=True)
class Explanation:
    """A difference that is meant."""

    name: str
    applies: Callable[[Request, str, Any, Any], bool]
    """On (request, path, ours, theirs); positions in the path are written as [n]."""
    reason: str


def _status_instead_of_event(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == "status" and theirs == f"{ours} as an event"


def _without_shape(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    no_text = isinstance(request.body, bytes) and request.body.decode(errors="ignore").encode() != request.body
    return no_text and ((path, theirs) == ("error", ABSENT) or (path, ours) == ("error without a shape", ABSENT))


def _translated(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path == TRANSLATED


def _errors(rule: Callable[[Error, Error], bool]) -> Callable[[Request, str, Any, Any], bool]:
    """Return a rule for pairs of errors."""
    return lambda _, path, ours, theirs: path == "error" and ABSENT not in (ours, theirs) and rule(ours, theirs)


def _pairs(pairs: tuple[Pair, ...]) -> Callable[[Request, str, Any, Any], bool]:
    return _errors(lambda ours, theirs: is_one_of(pairs, ours, theirs))


def _cached_tokens(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    caching = path.endswith(("prompt_tokens_details.cached_tokens", "prompt_tokens_details.created_cache_tokens"))
    return caching and isinstance(ours, int) and isinstance(theirs, int)


def _as_theirs(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.startswith("self.") and path.endswith(AS_THEIRS)


def _batches(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    behind = "progress: characters after" in path and 0 < theirs - ours <= _BATCH_CHARS
    return behind and request.name.startswith("parsers")


def _beams(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    if request.field("use_beam_search") is not True:
        return False
    if path == "outcome":
        return bool(ours.get("param") == "use_beam_search" and theirs == {"status": 200, "errors": []})
    return _pairs(BEAMS)(request, path, ours, theirs)


def _lenient_parts(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    answered = path == "outcome" and ours == {"status": 200, "errors": []}
    return answered and " for ValidatorIterator\n" in str(theirs.get("message")) and theirs.get("code") == 400


def _several_errors(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    if path != "error" or ABSENT in (ours, theirs):
        return False
    if request.name == "malformed/several wrong types":
        return places(ours["message"])[1:] != [] and sorted(places(ours["message"])) == sorted(
            places(theirs["message"])
        )
    # vLLM looks at these two before it looks at any type.
    early = str(theirs["message"]).startswith("`prompt_logprobs` are not available")
    first = request.streamed and bool(request.field("prompt_logprobs")) and early
    return first or is_one_of(SEVERAL, ours, theirs)


def _beyond_the_wire(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    answered = path == "outcome" and theirs == {"status": 200, "errors": []}
    return bool(answered and ours.get("param") == "top_k" and "is out of range" in str(ours.get("message")))


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
        _pairs(BROKEN),
        "Some wrong values make vLLM fail with an error of Python's; the fault is the request's, and a 400 says so.",
    ),
    Explanation(
        "errors have one shape",
        _without_shape,
        "vLLM answers a body that is not UTF-8 with FastAPI's own error; here every error has OpenAI's shape.",
    ),
    Explanation(
        "names of fields",
        _errors(names_the_field),
        "`param` names the field also where vLLM's error names none, as OpenAI's does.",
    ),
    Explanation(
        "the same error, readable",
        _translated,
        "A field is FIELD, not body.FIELD; a list of wrong types has a readable line for each; no message repeats "
        "the parameter and its value.",
    ),
    Explanation(
        "fewer lines for one mistake",
        _errors(says_less_of_types),
        "Where a field may be of many kinds, vLLM lists what is wrong with each; here with the one that was meant.",
    ),
    Explanation(
        "other words",
        _pairs(WORDS),
        "The message says what this server has, or no more than is known where the check is; the field is the same.",
    ),
    Explanation(
        "prompts that are too long",
        _pairs(TOO_LONG),
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
        "parts of content that lack their text",
        _lenient_parts,
        "vLLM refuses some of them, and strings as parts, when they are asked for in one form and not in another.",
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
        _pairs(TYPES_FIRST),
        "vLLM reads logprob_token_ids, and tool_choice beside tools, before it looks at types: a wrong type is a wrong "
        "value then.",
    ),
    Explanation(
        "grammars that no engine takes",
        _pairs(GRAMMARS),
        "vLLM's HTTP server compiles some grammars, here the engine says what is wrong; and what was asked for is "
        "listed without its own settings.",
    ),
    Explanation(
        "what an engine says of its own faults",
        _pairs(ENGINE),
        "An error in mid-reply says whose it was: the engine's, or a grammar's that allows no further token.",
    ),
    Explanation(
        "parsers that differ by form",
        _as_theirs,
        "Some of vLLM's parsers find other things in a stream than in the whole reply; they are used as they are.",
    ),
    Explanation(
        "parsers are fed in batches",
        _batches,
        "What a parser reads may come a few tokens after its ids: some tokens are given to it at a time.",
    ),
    Explanation(
        "fields of Responses",
        fields_of_responses,
        "The response has the fields that OpenAI's client wants, with its values, and none of vLLM's own.",
    ),
    Explanation(
        "responses that are cut",
        cut_responses,
        "A reply that reached its limit is incomplete, and so is its last item; vLLM says so in some forms only.",
    ),
    Explanation(
        "log-probabilities of streamed responses",
        logprobs_of_responses,
        "Each token has its own, and its bytes; vLLM leaves out the first one's, and the bytes.",
    ),
    Explanation(
        "names of ids",
        names_of_ids,
        "Log-probabilities on /inference/v1/generate also have the names that clients of older versions look for.",
    ),
    Explanation(
        "fields of Messages",
        fields_of_messages,
        "The message has Anthropic's id and fields; vLLM's is a chat's id.",
    ),
    Explanation(
        "errors of Messages",
        errors_of_messages,
        "An error has Anthropic's shape and type, whatever is wrong; vLLM's has OpenAI's type, or its shape too.",
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
