"""Wrong responses, each with one change to a right one: the comparison objects to every one of them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.parity.canned import error, error_stream, full_body, listed, reply, stream
from tests.conformance.parity.compare import compare
from tests.conformance.parity.explained import explain
from tests.conformance.parity.request import MESSAGES, RESPONSES, Reply, Request, chat
from tokenwire.worker.vllm_engine.driver import GRAMMAR_STUCK, INTERNAL_ERROR

WORDS = ["One", " two", " three", " four", " five"]
REQUEST = chat("Count", logprobs=True, return_token_ids=True, stream=True)
PLAIN = chat("Count", stream=True)
SMALL = "top_k must be 0 (disable), or at least 1, got -5."
LISTED = (
    "2 validation errors:\n  {'type': 'a', 'loc': 'body.n', 'msg': 'Not a number', 'input': 'x'}\n"
    "  {'type': 'b', 'loc': 'body.stop', 'msg': 'Not a list', 'input': '<dict of 2 items>'}"
)
RIGHT = "2 validation errors:\n  n: Not a number (got 'x')\n  stop: Not a list (got a dict of 2 items)"
LONG = (
    "This model's maximum context length is 10 tokens. However, your prompt contains at least 11 input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
)

Events = list[dict[str, Any]]
Change = Callable[[Events], object]


def chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    """Return a chunk."""
    envelope = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**envelope, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **choice}]}


def right(with_ids: bool = True) -> Events:
    """Return the right response: one chunk per token."""
    events = [chunk({"role": "assistant", "content": ""})]
    for number, word in enumerate(WORDS):
        scored = {"token": word, "logprob": -1.0, "bytes": [], "top_logprobs": []}
        extras = {"token_ids": [number], "logprobs": {"content": [scored]}} if with_ids else {}
        events.append(chunk({"content": word}, **extras))
    events[-1]["choices"][0] |= {"finish_reason": "stop", "stop_reason": None}
    return events


def choices(events: Events) -> Events:
    """Return the choices of the chunks that have tokens."""
    return [event["choices"][0] for event in events[1:]]


def move(name: str, events: Events, source: int, target: int) -> None:
    """Move a field of a chunk to another chunk's end or start."""
    given, taken = choices(events)[source], choices(events)[target]
    if name == "token_ids":
        taken[name] = sorted(taken[name] + given[name])
        given[name] = []
    elif name == "logprobs":
        parts = [given[name]["content"], taken[name]["content"]]
        taken[name] = {"content": [*parts[0], *parts[1]] if source < target else [*parts[1], *parts[0]]}
        given[name] = {"content": []}
    else:
        parts = [given["delta"][name], taken["delta"][name]]
        taken["delta"][name] = "".join(parts if source < target else reversed(parts))
        given["delta"][name] = ""


def late(events: Events) -> None:
    """Send all of the text in the last chunk."""
    for choice in choices(events):
        choice["delta"]["content"] = ""
    choices(events)[-1]["delta"]["content"] = "".join(WORDS)


def gather(events: Events) -> None:
    """Send all ids in the last chunk."""
    for number in range(4):
        move("token_ids", events, number, -1)


STREAMS: dict[str, Change] = {
    "text all in the last chunk": late,
    "text a chunk late": lambda events: move("content", events, 1, 2),
    "text a chunk early": lambda events: move("content", events, 2, 1),
    "ids on a later chunk": lambda events: move("token_ids", events, 1, 2),
    "ids on an earlier chunk": lambda events: move("token_ids", events, 3, 2),
    "all ids in the end": gather,
    "log-probabilities on a later chunk": lambda events: move("logprobs", events, 0, 1),
    "log-probabilities on an earlier chunk": lambda events: move("logprobs", events, 4, 3),
    "another time in one chunk": lambda events: events[2].update(created=2),
    "no time": lambda events: [event.update(created=None) for event in events],
    "a time that is no whole number": lambda events: [event.update(created=1.5) for event in events],
    "another id in one chunk": lambda events: events[2].update(id="chatcmpl-2"),
    "a text that is another one": lambda events: choices(events)[1]["delta"].update(content=" too"),
    "an id that is another one": lambda events: choices(events)[1].update(token_ids=[7]),
    "a choice that ends otherwise": lambda events: choices(events)[-1].update(finish_reason="length"),
    "a chunk twice": lambda events: events.insert(2, copy.deepcopy(events[2])),
    "a chunk too few": lambda events: events.pop(2),
}


def objections(request: Request, ours: Reply, theirs: Reply) -> list[str]:
    """Return the differences that nothing explains."""
    return [str(found) for found in compare(request, ours, theirs) if explain(request, found) is None]


@pytest.mark.parametrize("name", STREAMS)
def test_a_wrong_stream_is_objected_to(name: str) -> None:
    """Wrong contents, grouping of fields, and common fields of chunks."""
    wrong = right()
    STREAMS[name](wrong)

    assert objections(REQUEST, stream(right()), stream(right())) == []
    assert objections(REQUEST, stream(wrong), stream(right()))


def test_late_text_is_objected_to_without_ids() -> None:
    """Without token counts, text in several chunks of the reference and only in the last one here is late."""
    wrong = right(with_ids=False)
    late(wrong)

    assert objections(PLAIN, stream(wrong), stream(right(with_ids=False)))


def test_text_may_be_ahead_of_the_references_held_text() -> None:
    """With stop strings vLLM holds back as many characters as may start one, and no more."""
    behind, request = right(), REQUEST.with_fields(stop=["abcdef"])
    content = choices(behind)
    content[0]["delta"]["content"], content[1]["delta"]["content"] = "", "One two"

    assert objections(request, stream(right()), stream(behind)) == []
    assert objections(request, stream(behind), stream(right()))
    assert objections(REQUEST.with_fields(stop=["ab"]), stream(right()), stream(behind))


ERRORS: dict[str, tuple[Reply, Reply]] = {
    "another field": (error(SMALL, "top_p"), error(SMALL, "top_k")),
    "another field than the message's": (error(SMALL, "top_p"), error(SMALL, None)),
    "no field": (error(SMALL, None), error(SMALL, "top_k")),
    "another message": (error("top_k is wrong", "top_k"), error(SMALL, "top_k")),
    "another message without a field": (error("no", None), error("The prompt is wrong", None)),
    "a message about a field that is named in passing": (error("seed: no", "seed"), error("bad seed", None)),
    "another type": (error(SMALL, "top_k", kind="NotFoundError"), error(SMALL, "top_k")),
    "another status": (error(SMALL, "top_k", status=404), error(SMALL, "top_k")),
    "another status than the body's": (
        reply({"error": {"message": SMALL, "type": "BadRequestError", "param": "top_k", "code": 400}}, 404),
        error(SMALL, "top_k"),
    ),
    "another code": (
        reply({"error": {"message": SMALL, "type": "BadRequestError", "param": "top_k", "code": 404}}, 400),
        error(SMALL, "top_k"),
    ),
    "a 400 instead of a 500": (error("no", None), error("no", None, 500, "InternalServerError")),
    "a 500 instead of a 400": (error("no", None, 500, "InternalServerError"), error("no", None)),
    "a 500 in other words": (
        error("oops", None, 500, "InternalServerError"),
        error("Internal server error", None, 500, "InternalServerError"),
    ),
    "a 503 instead of a 500": (
        error("Internal server error", None, 503, "ServiceUnavailableError"),
        error("Internal server error", None, 500, "InternalServerError"),
    ),
    "an error instead of an answer": (error("seed is out of range", "seed"), reply(full_body())),
    "an answer instead of an error": (reply(full_body()), error(SMALL, "top_k")),
    "an answer instead of an error in a stream": (stream(right()), error_stream(SMALL)),
    "a list with a line too few": (listed(RIGHT.rpartition("\n")[0], "n"), listed(LISTED, "body.n")),
    "a list with another value": (listed(RIGHT.replace("'x'", "'y'"), "n"), listed(LISTED, "body.n")),
    "a list with another field": (listed(RIGHT, "stop"), listed(LISTED, "body.n")),
    "a list about another field": (listed("1 validation error:\n  seed: no (got 1)", "seed"), listed(LISTED, "body.n")),
    "a list instead of a sentence": (listed(RIGHT, "n"), error("n is wrong", "n")),
    "a prompt that is too long, without what clients look for": (
        error("The prompt is too long.", "input_tokens"),
        error(LONG, "input_tokens"),
    ),
    "an error with more in it": (
        reply({"error": {**json.loads(error(SMALL).text)["error"], "x": 1}}, 400),
        error(SMALL),
    ),
    "an error without a shape": (reply({"detail": "no"}, 400), error(SMALL)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_wrong_error_is_objected_to(name: str) -> None:
    """All four fields of an error, its status, and its presence."""
    ours, theirs = ERRORS[name]

    assert objections(chat("Hi"), theirs, theirs) == []
    assert objections(chat("Hi"), ours, theirs)


@pytest.mark.parametrize("message", [GRAMMAR_STUCK, INTERNAL_ERROR])
def test_an_engines_error_may_state_its_cause(message: str) -> None:
    """Before any token and behind some; anything else is objected to."""
    unexplained = ("Internal server error", None, 500, "InternalServerError")
    request = chat("Hi")

    assert objections(request, error(message, *unexplained[1:]), error(*unexplained)) == []
    ours, theirs, wrong = (failed(text) for text in (message, unexplained[0], "oops"))
    assert objections(REQUEST, ours, theirs) == []
    assert objections(REQUEST, wrong, theirs)


def failed(message: str) -> Reply:
    """Return a stream that breaks off with an error."""
    body = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
    return stream([*right()[:2], body])


def test_a_wrong_full_response_differs() -> None:
    """A time must be present and a number."""
    assert objections(chat("Hi"), reply({**full_body(), "created": "now"}), reply(full_body()))


MESSAGE = Request(MESSAGES, {"model": "m", "messages": [], "max_tokens": 1})
RESPONSE = Request(RESPONSES, {"model": "m", "input": "Hi"})


def anthropic(message: str, kind: str, status: int = 400) -> Reply:
    """Return an error of the Messages API."""
    return reply({"type": "error", "error": {"type": kind, "message": message}}, status)


@pytest.mark.parametrize(
    "ours",
    [
        anthropic("no", "invalid_request_error", 404),
        anthropic("no", "not_found_error"),
        anthropic("other", "invalid_request_error"),
        anthropic("no", "invalid_request_error", 500),
    ],
)
def test_a_wrong_error_of_messages_is_objected_to(ours: Reply) -> None:
    """Status, type and message are compared; only vLLM may have another type and format."""
    assert objections(MESSAGE, anthropic("no", "invalid_request_error"), error("no", None)) == []
    assert objections(MESSAGE, ours, error("no", None))


def test_a_wrong_field_of_a_response_is_objected_to() -> None:
    """A field with a deliberate difference must have exactly that one."""
    theirs = {"object": "response", "id": "resp_1", "status": "completed", "tool_choice": "none"}

    assert objections(RESPONSE, reply({**theirs, "tool_choice": "auto"}), reply(theirs)) == []
    assert objections(RESPONSE, reply({**theirs, "tool_choice": "required"}), reply(theirs))
    assert objections(RESPONSE, reply({**theirs, "status": "failed"}), reply(theirs))
    assert objections(RESPONSE, reply({**theirs, "id": "msg_1"}), reply(theirs))
