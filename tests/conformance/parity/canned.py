"""Canned responses for the tests of the comparison itself."""

import copy
import json
from typing import Any

from tests.conformance.parity.request import Reply, Request, chat

REQUEST = chat("Hi", logprobs=True)
STREAMED = REQUEST.with_fields(stream=True, stream_options={"include_usage": True})

_LOGPROB = {"token": "Hey", "logprob": -0.25, "bytes": [72], "top_logprobs": []}
_WHOLE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hey you", "reasoning": None},
            "logprobs": {"content": [_LOGPROB, {**_LOGPROB, "token": " you"}]},
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": None,
        }
    ],
    "system_fingerprint": "a",
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def full_body() -> dict[str, Any]:
    """Return a response without streaming."""
    return copy.deepcopy(_WHOLE)


def chunks() -> list[dict[str, Any]]:
    """Return the same response in chunks."""
    answer = full_body()
    scored = answer["choices"][0]["logprobs"]["content"]
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    first = {"index": 0, "delta": {"content": "Hey"}, "logprobs": {"content": scored[:1]}, "finish_reason": None}
    last = {
        "index": 0,
        "delta": {"content": " you"},
        "logprobs": {"content": scored[1:]},
        "finish_reason": "stop",
        "stop_reason": None,
    }
    envelope = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 2, "model": "m"}
    made = [{**envelope, "choices": [choice]} for choice in (opening, first, last)]
    return [*made, {**envelope, "choices": [], "usage": answer["usage"]}]


def reply(body: Any, status: int = 200) -> Reply:
    """Wrap a body as a response."""
    return Reply(status, "application/json", json.dumps(body))


def stream(events: list[dict[str, Any]], done: bool = True) -> Reply:
    """Wrap chunks as a response."""
    data = [json.dumps(event) for event in events] + ["[DONE]"] * done
    return Reply(200, "text/event-stream; charset=utf-8", "".join(f"data: {each}\n\n" for each in data))


def error(message: str, param: str | None = "n", status: int = 400, kind: str = "BadRequestError") -> Reply:
    """Return an error response."""
    return reply({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


ANSWERED = {"status": 200, "errors": []}
"""The outcome of a request that was answered."""


def listed(message: str, param: str) -> Reply:
    """Return an error about types."""
    return error(message, param, kind="Bad Request")


def error_stream(message: str) -> Reply:
    """Return a stream that consists of an error."""
    return stream([{"error": {"message": message, "type": "BadRequestError", "param": "n", "code": 400}}])


def paths(request: Request, ours: Reply, theirs: Reply) -> list[str]:
    """Compare, and return the paths of differences."""
    from tests.conformance.parity.compare import compare

    return [difference.path for difference in compare(request, ours, theirs)]
