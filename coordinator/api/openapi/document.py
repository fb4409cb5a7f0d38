"""Builds the OpenAPI document of the routes that are on: FastAPI knows paths and bodies, the rest is in OPERATIONS."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute

from tokenwire import __version__
from tokenwire.coordinator.api.openapi.errors import ErrorResponses
from tokenwire.coordinator.api.openapi.operation import Operation
from tokenwire.coordinator.api.openapi.operations import OPERATIONS
from tokenwire.coordinator.api.openapi.schemas import Schemas

_SUMMARY = "Disaggregated LLM serving: text here, token ids on GPU workers."
_DESCRIPTION = (
    "The routes that this server has. A streamed answer is `text/event-stream`; the schema beside it is that of the "
    "`data` of one event. OpenAI's streams, and those of ids, end with the data `[DONE]`; what goes wrong in the "
    "middle of a stream is an event that holds an error. Fields that nobody knows are ignored."
)
_GROUPS = {
    "OpenAI": "Chat, completions and responses, as OpenAI's clients and vLLM's know them.",
    "Anthropic": "The Messages API. Its errors have Anthropic's shape.",
    "Token ids": "vLLM's routes that take or return ids.",
    "SGLang": "For rollout loops that were written for SGLang.",
    "TRL": "For trainers that use the routes of TRL's own server, up to version 1.10.",
    "Service": "About the service itself.",
    "Steering": "Pauses, weights and adapters of a whole fleet, under vLLM's names.",
    "Reinforcement learning": "The state of a fleet and operations on it, in Dynamo's shapes.",
}
BEARER, HEADER, ADMIN = "apiKey", "apiKeyHeader", "adminKey"
_SCHEMES = {
    BEARER: {"type": "http", "scheme": "bearer", "description": "An API key."},
    HEADER: {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, as Anthropic sends it."},
    ADMIN: {"type": "http", "scheme": "bearer", "description": "The admin key, in place of an API key."},
}


@dataclass(frozen=True, slots=True)
class Security:
    """Who may ask."""

    asks_key: bool
    """Whether there are API keys."""
    asks_admin_key: bool
    """Whether there is an admin key."""
    free_paths: Container[str]
    """What needs no API key."""
    is_guarded: Callable[[APIRoute], bool]
    """Whether a route asks for the admin key."""

    def schemes(self) -> dict[str, Any]:
        """Return the keys that this server knows of."""
        known = [BEARER, HEADER] * self.asks_key + [ADMIN] * self.asks_admin_key
        return {name: _SCHEMES[name] for name in known}

    def needed(self, route: APIRoute) -> list[dict[str, list[str]]]:
        """Return the keys of which one is needed."""
        if self.is_guarded(route):
            return [{ADMIN: []}] if self.asks_admin_key else []
        return [{BEARER: []}, {HEADER: []}] if self.asks_key and route.path not in self.free_paths else []


def openapi_document(routes: Sequence[BaseRoute], security: Security) -> dict[str, Any]:
    """Return the document."""
    served = [route for route in routes if isinstance(route, APIRoute) and route.include_in_schema]
    document = get_openapi(
        title="tokenwire", version=__version__, summary=_SUMMARY, description=_DESCRIPTION, routes=served
    )
    schemas = Schemas(document.setdefault("components", {}).setdefault("schemas", {}))
    errors = ErrorResponses(schemas)
    for route in served:
        for method in route.methods:
            operation = OPERATIONS[route.path_format]
            described = document["paths"][route.path_format][method.lower()]
            needed = security.needed(route)
            _describe(described, operation, method, schemas)
            described["security"] = needed
            described["responses"] |= errors.of(operation, method, bool(needed))
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own errors, which nobody gets here
        schemas.drop(name)
    document["components"] |= {"responses": errors.responses, "securitySchemes": security.schemes()}
    used = {OPERATIONS[route.path_format].group for route in served}
    document["tags"] = [{"name": name, "description": text} for name, text in _GROUPS.items() if name in used]
    return document


def _describe(described: dict[str, Any], operation: Operation, method: str, schemas: Schemas) -> None:
    described["tags"] = [operation.group]
    described["summary"] = operation.summary
    if operation.description:
        described["description"] = operation.description
    described["responses"] = {"200": {"description": "Done.", **_content(operation, schemas)}}
    if operation.form is not None:
        _describe_form(described, operation.form, method, schemas)
    if operation.example is not None:
        described["requestBody"]["content"]["application/json"]["example"] = operation.example


def _content(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.answer is None:
        return {}
    if operation.answer is str:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    content = {"application/json": {"schema": schemas.of(operation.answer)}}
    if operation.chunk is not None:
        content["text/event-stream"] = {"schema": schemas.of(operation.chunk)}
    return {"content": content}


def _describe_form(described: dict[str, Any], form: type[BaseModel], method: str, schemas: Schemas) -> None:
    """Describe fields that may stand in the query and, but for GET, in a body."""
    described["parameters"] = schemas.parameters(form)
    if method != "GET":
        body = {"application/json": {"schema": schemas.of(form)}}
        described["requestBody"] = {"description": "The same fields; they count before the query's.", "content": body}
