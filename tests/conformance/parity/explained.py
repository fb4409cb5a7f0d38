"""Deliberate differences: a name, when it applies, and the reason in one sentence. All others are defects."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.parity.compare import ABSENT, TRANSLATED, Difference
from tests.conformance.parity.consistency import AS_THEIRS, AS_WHOLE
from tests.conformance.parity.errors_meant import (
    BROKEN,
    ENGINE,
    GRAMMARS,
    SEVERAL,
    TOO_LONG,
    TYPES_FIRST,
    WORDS,
    Error,
    ErrorPair,
    is_one_of,
    lists_fewer_types,
    names_the_field,
)
from tests.conformance.parity.progress import ALL_AT_ONCE
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
    """A deliberate difference."""

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


def _pairs(pairs: tuple[ErrorPair, ...]) -> Callable[[Request, str, Any, Any], bool]:
    return _errors(lambda ours, theirs: is_one_of(pairs, ours, theirs))


def _errors_of_engines(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    if path == "stream.errors[n].message":  # behind tokens: all else of it is compared too
        return any(re.fullmatch(pair.ours, ours) and re.fullmatch(pair.theirs, theirs) for pair in ENGINE)
    return _pairs(ENGINE)(request, path, ours, theirs)


def _cached_tokens(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    caching = path.endswith(("prompt_tokens_details.cached_tokens", "prompt_tokens_details.created_cache_tokens"))
    return caching and isinstance(ours, int) and isinstance(theirs, int)


def _as_theirs(_: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.endswith(AS_WHOLE) or (path.startswith("self.") and path.endswith(AS_THEIRS))


def _batches(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    behind = "progress: characters after" in path and 0 < theirs - ours <= _BATCH_CHARS
    return behind and request.name.startswith("parsers")


def _held(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    return path.endswith(ALL_AT_ONCE) and request.name.startswith("parsers")


def _beams(request: Request, path: str, ours: Any, theirs: Any) -> bool:
    if request.field("use_beam_search") is not True:
        return False
    if path == "outcome":
        return bool(ours.get("param") == "use_beam_search" and theirs == {"status": 200, "errors": []})
    # Of several mistakes in a request this one is named first.
    is_beams = path == "error" and ABSENT not in (ours, theirs) and ours["param"] == "use_beam_search"
    return bool(is_beams and (ours["status"], theirs["status"]) == (400, 400))


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
        "weight versions of ids",
        _weight_versions,
        "Requests for ids also get the weight versions of their tokens, as on vLLM's /inference/v1/generate.",
    ),
    Explanation(
        "reused ids",
        _token_history,
        "Chats that request ids or name a conversation report how many prompt tokens were reused from earlier turns.",
    ),
    Explanation(
        "a status instead of an event",
        _status_instead_of_event,
        "An error before the first token is an HTTP status, so that clients can retry by it; vLLM has already "
        "sent 200.",
    ),
    Explanation(
        "a 400 instead of a 500",
        _pairs(BROKEN),
        "Some invalid values make vLLM fail with a Python error; they are the client's mistake, so here they are "
        "a 400.",
    ),
    Explanation(
        "one format of errors",
        _without_shape,
        "vLLM rejects a body that is not UTF-8 with FastAPI's own error; here all errors have OpenAI's format.",
    ),
    Explanation(
        "names of fields",
        _errors(names_the_field),
        "`param` also names the field where vLLM's error names none, as OpenAI's does.",
    ),
    Explanation(
        "the same error, readable",
        _translated,
        "A field is FIELD, not body.FIELD; a list of type errors has a readable line for each; messages do not "
        "repeat the parameter and its value.",
    ),
    Explanation(
        "fewer lines for one mistake",
        _errors(lists_fewer_types),
        "For fields of several types vLLM lists the errors of each type; here only those of the intended one.",
    ),
    Explanation(
        "other messages",
        _pairs(WORDS),
        "The message describes this server, or only what can be checked at that point; the field is the same.",
    ),
    Explanation(
        "prompts that are too long",
        _pairs(TOO_LONG),
        "One message on all routes, with the phrases that clients match on; vLLM's has some of them.",
    ),
    Explanation(
        "cached tokens",
        _cached_tokens,
        "What is cached depends on the earlier requests to each server.",
    ),
    Explanation(
        "beam search",
        _beams,
        "Rejected by name: it runs in front of the engine, with many requests for one, and is never streamed.",
    ),
    Explanation(
        "content parts without text",
        _lenient_parts,
        "vLLM rejects some of them, and strings as parts, depending on the form of the request.",
    ),
    Explanation(
        "the first of several errors",
        _several_errors,
        "`param` names the first invalid field, which depends on the order of checks.",
    ),
    Explanation(
        "unused numbers",
        _beyond_the_wire,
        "A top_k of more than 32 bits is rejected, even if nothing is sampled and vLLM ignores it.",
    ),
    Explanation(
        "values checked before types",
        _pairs(TYPES_FIRST),
        "vLLM reads logprob_token_ids, and tool_choice with tools, before it checks types: a wrong type is then a "
        "wrong value.",
    ),
    Explanation(
        "invalid grammars",
        _pairs(GRAMMARS),
        "vLLM's HTTP server compiles some grammars, here the engine reports the error; and constraints are listed "
        "without their own settings.",
    ),
    Explanation(
        "errors of engines",
        _errors_of_engines,
        "An error mid-reply states its cause: the engine, or a grammar that allows no further token.",
    ),
    Explanation(
        "parsers that differ by form",
        _as_theirs,
        "Some of vLLM's parsers return different results for a stream and for a full reply; here both say the same.",
    ),
    Explanation(
        "batched parsers",
        _batches,
        "Parsed text may come a few tokens after its ids, because some tokens are passed to parsers in batches.",
    ),
    Explanation(
        "held parsers",
        _held,
        "The reasoning parser of these servers contradicts itself in streams: here all is sent at their end.",
    ),
    Explanation(
        "fields of Responses",
        fields_of_responses,
        "Responses have the fields of OpenAI's client, with its values, and none of vLLM's own.",
    ),
    Explanation(
        "truncated responses",
        cut_responses,
        "A truncated reply and its last item are incomplete; vLLM reports that in some forms only.",
    ),
    Explanation(
        "log-probabilities of streamed responses",
        logprobs_of_responses,
        "Each token has its log-probability and its bytes; vLLM omits those of the first token, and the bytes.",
    ),
    Explanation(
        "names of ids",
        names_of_ids,
        "Log-probabilities on /inference/v1/generate also have the names of older versions.",
    ),
    Explanation(
        "fields of Messages",
        fields_of_messages,
        "Messages have Anthropic's id and fields; vLLM's id is a chat's.",
    ),
    Explanation(
        "errors of Messages",
        errors_of_messages,
        "All errors have Anthropic's format and type; vLLM's have OpenAI's type, some also its format.",
    ),
    Explanation(
        "keys without a value",
        _empty_keys,
        "Chunks differ in which keys are null or omitted: to clients it is the same, and chunks are smaller.",
    ),
)


def explain(request: Request, difference: Difference) -> Explanation | None:
    """Return the explanation of a difference, if there is one."""
    path = re.sub(r"\[\d+\]", "[n]", difference.path)
    for explanation in EXPLANATIONS:
        if explanation.applies(request, path, difference.ours, difference.theirs):
            return explanation
    return None
