"""Error responses in OpenAI's format, {"error": {"message", "type", "param", "code"}}, or in Anthropic's."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from tokenwire.coordinator.api.api_request import InvalidBody, context_of
from tokenwire.coordinator.http.content_coding import ACCEPTED_CODINGS
from tokenwire.errors import FleetFailed, InvalidRequest, Malformed, TokenwireError, error_body

log = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499
"""The status of a request whose client left, as nginx records it."""

_MAX_REPORTED = 10
_MAX_INPUT_CHARS = 200
_HTTP_TYPES = {404: "NotFoundError", 405: "MethodNotAllowedError", 413: "RequestEntityTooLargeError"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def anthropic_error(message: str, kind: str, code: int | str, param: str | None = None) -> dict[str, Any]:
    """Return Anthropic's error object, whose type depends on the status; kind and param are not part of it."""
    status = code if isinstance(code, int) else 400
    type_ = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": type_, "message": message}}


ErrorBody = Callable[[str, str, int | str, str | None], dict[str, Any]]
_OTHER_BODIES: dict[str, ErrorBody] = {"/v1/messages": anthropic_error}
"""Error formats other than OpenAI's, by path prefix."""


def error_event(error: TokenwireError) -> bytes:
    """Render an error inside a stream."""
    body = error_body(error.message, error.openai_type, error.http_status, error.param)
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def anthropic_error_event(error: TokenwireError) -> bytes:
    """Render an error inside a stream."""
    body = anthropic_error(error.message, error.openai_type, error.http_status)
    return b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"


def error_response(error: TokenwireError, scope: Scope, reason: str | None = None) -> JSONResponse:
    """Render an error as the full response, in the format of the path.

    reason: the message for the log, if the error's own repeats client input.
    """
    context_of(scope).record.set_rejection(error.message if reason is None else reason, error.param)
    headers = {}
    if error.http_status in (429, 503):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 1)))
    if error.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.http_status == 415:
        headers["Accept-Encoding"] = ACCEPTED_CODINGS
    code = error.openai_code or error.http_status
    body = _body_of(scope["path"])(error.message, error.openai_type, code, error.param)
    if isinstance(error, FleetFailed):
        body["error"]["workers"] = error.workers
    return JSONResponse(body, error.http_status, headers)


def response_to(error: Exception, scope: Scope) -> Response | None:
    """Return the response to what a route raised about its request, in the path's format; None for other errors."""
    if isinstance(error, TokenwireError):
        return error_response(error, scope)
    if isinstance(error, InvalidBody):
        return _response_to_invalid_body(error, scope)
    if isinstance(error, HTTPException):
        return _response_to_http_error(error, scope)
    if isinstance(error, RecursionError):
        message = "The request, or JSON within it, is nested too deeply: some 900 levels can be read."
        return error_response(InvalidRequest(message), scope)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)  # the client is gone
    return None


def response_to_unexpected(error: Exception, scope: Scope) -> Response:
    """Log an error that says nothing about the request, and return the response to it."""
    log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
    return JSONResponse(_body_of(scope["path"])("Internal server error", "InternalServerError", 500, None), 500)


def _response_to_invalid_body(error: InvalidBody, scope: Scope) -> JSONResponse:
    problems = error.problems
    count = len(problems)
    lines = [_line(problem) for problem in problems[:_MAX_REPORTED]]
    if count > _MAX_REPORTED:
        lines.append(f"... and {count - _MAX_REPORTED} more")
    message = f"{count} validation error{'s' if count > 1 else ''}:\n  " + "\n  ".join(lines)
    param = _path(problems[0]["loc"]) if problems else None
    reason = "; ".join(f"{_path(problem['loc'])}: {problem['msg']}" for problem in problems[:_MAX_REPORTED])
    return error_response(Malformed(message, param=param), scope, reason)


def _response_to_http_error(error: HTTPException, scope: Scope) -> JSONResponse:
    context_of(scope).record.set_rejection(str(error.detail), None)
    kind = _HTTP_TYPES.get(error.status_code, "BadRequestError")
    body = _body_of(scope["path"])(str(error.detail), kind, error.status_code, None)
    return JSONResponse(body, error.status_code, error.headers)


def _body_of(path: str) -> ErrorBody:
    return next((body for prefix, body in _OTHER_BODIES.items() if path.startswith(prefix)), error_body)


def _path(location: tuple[int | str, ...]) -> str:
    """Return the field's path without pydantic's union markers."""
    shown = [str(part)[:_MAX_INPUT_CHARS] for part in location if part != "body"]
    parts = [part for part in shown if not _is_marker(part)]
    return ".".join(parts) or "body"


def _line(problem: Mapping[str, Any]) -> str:
    if problem["loc"] == ("body",) and isinstance(problem.get("input"), bytes):
        return "Unsupported Media Type: Only 'application/json' is allowed"
    return f"{_path(problem['loc'])}: {problem['msg']} (got {_shorten(problem)})"


def _is_marker(part: str) -> bool:
    return any(sign in part for sign in "[]{}()") or part in ("str", "int", "float", "bool", "bytes", "list", "dict")


def _shorten(problem: Mapping[str, Any]) -> str:
    value = problem.get("input")
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)} items"
    if isinstance(value, str | bytes) and len(value) > _MAX_INPUT_CHARS:
        return repr(value[:_MAX_INPUT_CHARS]) + "..."
    text = repr(value)
    return text if len(text) <= _MAX_INPUT_CHARS else text[:_MAX_INPUT_CHARS] + "..."
