"""Compares a server's streamed and full responses: assembled text, ids, logprobs and usage."""

from dataclasses import replace
from typing import Any

from tests.conformance.parity.compare import Difference, differences
from tests.conformance.parity.request import Reply, Request
from tests.conformance.parity.view import view

AS_THEIRS = " (as the reference)"
"""Follows the path of an inconsistency that the reference has as well."""
AS_WHOLE = " (as the reference's full reply)"
"""Follows the path of a difference of streams where the reference's stream contradicts its full reply."""

_PER_CHOICE = ("finish_reason", "stop_reason", "token_ids", "prompt_token_ids", "logprobs")
_OF_MESSAGE = ("content", "reasoning")


def other_form(request: Request) -> Request | None:
    """Return the request in the other form, streamed or not; None if the two may differ."""
    if not isinstance(request.body, dict) or not request.has_choices:
        return None
    if request.streamed:
        body = {name: value for name, value in request.body.items() if name not in ("stream", "stream_options")}
        return Request(request.path, body, f"{request.name} [full]", request.headers)
    if request.field("prompt_logprobs") is not None or request.field("use_beam_search"):
        return None
    body = {**request.body, "stream": True, "stream_options": {"include_usage": True}}
    return Request(request.path, body, f"{request.name} [streamed]", request.headers)


def inconsistencies(request: Request, full: Reply, streamed: Reply) -> list[Difference]:
    """Compare a full response ("ours") to an assembled stream ("theirs")."""
    if full.succeeded != streamed.succeeded:
        return [Difference("self.status", full.text[:300], streamed.text[:300])]
    if not full.succeeded:
        return []
    body, stream = view(request, full)["body"], view(request, streamed)["stream"]
    expected = {str(choice["index"]): _choice(choice) for choice in body["choices"]}
    seen = {index: _assembled(choice) for index, choice in stream["choices"].items()}
    if not request.field("return_token_ids"):
        # As in vLLM, a stream with echo names the prompt's ids unasked.
        for choice in (*expected.values(), *seen.values()):
            del choice["prompt_token_ids"]
    found = list(differences(expected, seen, "self.choices"))
    if stream["order"]:
        found.append(Difference("self.order", [], stream["order"]))
    if stream["usage"] is not None:
        found += differences(_usage(body["usage"]), _usage(stream["usage"]), "self.usage")
    return found


def marked(ours: list[Difference], theirs: list[Difference]) -> list[Difference]:
    """Mark inconsistencies that the reference has in the same places."""
    places = {difference.path for difference in theirs}
    return [replace(each, path=each.path + AS_THEIRS) if each.path in places else each for each in ours]


def marked_whole(
    request: Request, found: list[Difference], streams: tuple[Reply, Reply], full: Reply
) -> list[Difference]:
    """Mark differences of two streams, ours and the reference's, where only ours says what its full reply does."""
    ours, theirs = ({each.path for each in inconsistencies(request, full, stream)} for stream in streams)
    if not ours < theirs:  # both say `length` of a call that was cut off, and a full reply says `tool_calls`
        return found
    return [replace(each, path=each.path + AS_WHOLE) if each.path.startswith("stream.") else each for each in found]


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.get("message") or {}
    seen = {name: choice.get(name) for name in _PER_CHOICE}
    seen.update({name: message.get(name) or None for name in _OF_MESSAGE})
    seen["text"] = choice.get("text")
    seen["tool_calls"] = [
        (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
    ]
    return seen


def _assembled(choice: dict[str, Any]) -> dict[str, Any]:
    seen = {name: choice.get(name) or None for name in (*_PER_CHOICE, *_OF_MESSAGE)}
    seen["text"] = choice.get("text")
    seen["tool_calls"] = [(call["name"], call["arguments"]) for call in choice.get("tool_calls", {}).values()]
    return seen


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
