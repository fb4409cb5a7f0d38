"""Converts a response to a JSON-like value without generated values: ids, times, fingerprints."""

import re
from typing import Any

from tests.conformance.parity.events import anonymous, id_chunks, named_events
from tests.conformance.parity.request import GENERATE, MESSAGES, Reply, Request
from tests.conformance.parity.streams import assemble

_SERVERS_OWN = ("system_fingerprint",)
_RANDOM_CALL_ID = re.compile(r"^(chatcmpl-tool-|call_)[0-9a-zA-Z]{8,}$")


def view(request: Request, reply: Reply) -> dict[str, Any]:
    """Return the compared value of a response."""
    if reply.is_stream:
        return _stream_view(request, reply) if request.has_choices else _other_stream_view(request, reply)
    body = reply.json()
    if reply.status != 200:
        if request.path == MESSAGES:
            return _messages_error(reply, body)
        wrapped = isinstance(body, dict) and set(body) == {"error"} and isinstance(body["error"], dict)
        shape = {"error": body["error"]} if wrapped else {"error without a shape": body}
        return {"status": reply.status, "type": _media_type(reply), **shape}
    if not request.has_choices:
        return {"status": 200, "type": _media_type(reply), "body": anonymous(body)}
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name not in _SERVERS_OWN}
        body["id"] = _id(request, str(body.get("id")))
        body["created"] = type(body.get("created")).__name__
        for choice in body.get("choices", ()):
            for call in (choice.get("message") or {}).get("tool_calls") or ():
                call["id"] = _call_id(call.get("id"))
    return {"status": 200, "type": _media_type(reply), "body": body}


def _stream_view(request: Request, reply: Reply) -> dict[str, Any]:
    stream = assemble(reply.events())
    errors = stream.get("errors")
    if errors and not stream["choices"]:
        return _only_an_error(errors[0])
    for choice in stream["choices"].values():
        for call in choice.get("tool_calls", {}).values():
            call["id"] = _call_id(call["id"])
    chunk_ids = re.findall(r'"id":"([^"]*)"', reply.text[:400])
    stream["id"] = _id(request, chunk_ids[0]) if chunk_ids else None
    seen = {"status": reply.status, "type": _media_type(reply), "stream": stream}
    return {**seen, "progress": stream.pop("progress")}


def _only_an_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return a stream that consists of an error: another server may return a status instead."""
    return {"status": f"{error.get('code')} as an event", "type": "application/json", "error": error}


def _other_stream_view(request: Request, reply: Reply) -> dict[str, Any]:
    stream = id_chunks(reply.events()) if request.path == GENERATE else named_events(reply.text)
    if stream.get("errors") and not stream["choices"]:
        return _only_an_error(stream["errors"][0])
    seen = {"status": reply.status, "type": _media_type(reply), "stream": stream}
    return {**seen, "progress": stream.pop("progress", {})}


def _messages_error(reply: Reply, body: Any) -> dict[str, Any]:
    """Return an error of the Messages API: its contents, and separately its format."""
    inner = body.get("error") if isinstance(body, dict) else None
    if not isinstance(inner, dict):
        return {"status": reply.status, "type": _media_type(reply), "error without a shape": body}
    kind = f"{reply.status} {body.get('type')} {inner.get('type')}"
    return {
        "status": reply.status,
        "type": _media_type(reply),
        "kind": kind,
        "error": {"message": inner.get("message"), "param": None, "type": None, "code": reply.status},
    }


def _media_type(reply: Reply) -> str:
    return reply.content_type.partition(";")[0]


def _id(request: Request, given: str) -> str:
    """Return an id as far as the request determines it."""
    wanted = request.headers.get("x-request-id") or request.field("request_id")
    return given if wanted else given.partition("-")[0]


def _call_id(given: Any) -> Any:
    return _RANDOM_CALL_ID.sub(r"\1…", given) if isinstance(given, str) else given
