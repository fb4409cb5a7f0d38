"""Errors as Anthropic's clients expect them: {"type": "error", "error": {"type", "message"}}."""

import json
from typing import Any

from tokenwire.errors import TokenwireError

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def anthropic_error(message: str, kind: str, code: int, param: str | None = None) -> dict[str, Any]:
    """Return Anthropic's error object. Its type goes by the status; kind and param have no place in it."""
    type_ = _TYPES.get(code, "api_error" if code >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": type_, "message": message}}


def anthropic_error_event(error: TokenwireError) -> bytes:
    """Render an error inside a stream."""
    body = anthropic_error(error.message, error.openai_type, error.http_status)
    return b"event: error\ndata: " + json.dumps(body).encode() + b"\n\n"
