"""Builds the OpenAPI document of the enabled routes: paths and bodies from FastAPI, the rest from OPERATIONS."""

from collections.abc import Sequence
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
from tokenwire.coordinator.api.openapi.security import Security

_SUMMARY = "Disaggregated LLM serving: text here, token ids on GPU workers."
_DESCRIPTION = (
    "The enabled routes of this server. A streamed response is `text/event-stream`; its schema is that of the `data` "
    "of one event. OpenAI's streams, and those of ids, end with the data `[DONE]`; an error within a stream is an "
    "event. Unknown fields are ignored."
)
_GROUPS = {
    "OpenAI": "Chat, completions and responses, as in OpenAI's API and vLLM's.",
    "Anthropic": "The Messages API. Its errors are in Anthropic's format.",
    "Token ids": "vLLM's routes that take or return ids.",
    "SGLang": "For rollout loops written for SGLang.",
    "TRL": "For trainers that use the routes of TRL's own server, up to version 1.10.",
    "Service": "The service itself.",
    "Admin": "Pauses, weights and adapters of a whole fleet, under vLLM's names.",
    "Reinforcement learning": "The state of a fleet and operations on it, in Dynamo's format.",
}


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
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own errors, which are not used here
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
    success = {"200": {"description": "Done.", **_content(operation, schemas)}}
    described["responses"] = success if operation.succeeds else {}
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
    """Describe fields that may come in the query and, except for GET, in a body."""
    described["parameters"] = schemas.parameters(form)
    if method != "GET":
        body = {"application/json": {"schema": schemas.of(form)}}
        described["requestBody"] = {
            "description": "The same fields; they take precedence over the query's.",
            "content": body,
        }
