"""Error responses of routes in the OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from tokenwire.coordinator.api.openapi.error_schemas import AnthropicError, Error
from tokenwire.coordinator.api.openapi.operation import Operation
from tokenwire.coordinator.api.openapi.schemas import Schemas

_MEANINGS = {
    400: "The request is invalid; `param` names the field.",
    401: "The key is missing or unknown.",
    403: "Not allowed, for this key or for any.",
    404: "Not found, usually the model.",
    409: "Superseded by a newer operation, or a worker cannot be reconciled.",
    413: "The body is too large.",
    415: "The body is compressed in another way than those in Accept-Encoding.",
    422: "Workers died when they started this request; it must not be retried.",
    429: "Too many requests, of this key or in total; retry after the seconds in Retry-After.",
    500: "Internal error.",
    501: "Not supported by the engine.",
    502: "The operation failed on some workers, which `workers` lists.",
    503: "No worker can accept the request now; retry after the seconds in Retry-After.",
    504: "The client's or the server's timeout expired.",
}
_RETRIED = (429, 503)


class ErrorResponses:
    """Error responses, defined once and referenced by routes."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.responses: dict[str, Any] = {}
        """By name: the `components.responses` of the document."""

    def of(self, operation: Operation, method: str, requires_key: bool) -> dict[str, Any]:
        """Return the error responses of a route, by status."""
        kind = AnthropicError if operation.group == "Anthropic" else Error
        statuses = sorted({*_statuses(operation, method, requires_key)})
        return {str(status): self._response(status, kind) for status in statuses}

    def _response(self, status: int, kind: type[Error] | type[AnthropicError]) -> dict[str, str]:
        name = f"{kind.__name__}{status}"
        if name not in self.responses:
            content = {"application/json": {"schema": self._schemas.of(kind)}}
            self.responses[name] = {"description": _MEANINGS[status], "content": content}
            if status in _RETRIED:
                header = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
                self.responses[name]["headers"] = {"Retry-After": header}
        return {"$ref": f"#/components/responses/{name}"}


def _statuses(operation: Operation, method: str, requires_key: bool) -> Iterator[int]:
    yield 500
    if requires_key:
        yield from (401, 403, 429)
    if operation.form is not None and operation.group == "Service":
        yield 400
        return
    if method != "GET" or operation.form is not None:
        yield from (400, 404, 413, 415, 503)
    elif operation.finds:
        yield from (400, 404, 503)
        if operation.group == "Trajectories":
            yield from (413, 501)
    if operation.response is None:
        yield from (403, 404, 503)
    if operation.generates:
        yield from (422, 429, 504)
    if operation.form is not None:
        yield from (409, 501, 502)
