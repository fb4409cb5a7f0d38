"""Builds the OpenAPI document of the enabled routes: paths and bodies from their code, the rest from OPERATIONS."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from starlette.routing import BaseRoute

from tokenwire import __version__
from tokenwire.coordinator.api.openapi.errors import ErrorResponses
from tokenwire.coordinator.api.openapi.operation import Operation
from tokenwire.coordinator.api.openapi.operations import OPERATIONS
from tokenwire.coordinator.api.openapi.schemas import Schemas
from tokenwire.coordinator.api.openapi.security import Security
from tokenwire.coordinator.api.router import ApiRoute

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
    "Trajectories": "What was sampled in sessions, for trainers.",
    "SGLang": "For rollout loops written for SGLang.",
    "TRL": "For trainers that use the routes of TRL's own server, up to version 1.10.",
    "Service": "The service itself.",
    "Admin": "Pauses, weights and adapters of a whole fleet, under vLLM's names.",
    "Reinforcement learning": "The state of a fleet and operations on it, in Dynamo's format.",
}


def openapi_document(routes: Sequence[BaseRoute], security: Security) -> dict[str, Any]:
    """Return the document."""
    served = [route for route in routes if isinstance(route, ApiRoute) and route.include_in_schema]
    schemas = Schemas()
    errors = ErrorResponses(schemas)
    paths: dict[str, dict[str, Any]] = {}
    for route in served:
        for method in sorted(route.methods):
            operation = OPERATIONS[route.path_format]
            needed = security.needed(route)
            described = _describe(route, method, operation, schemas)
            described["security"] = needed
            described["responses"] |= errors.of(operation, method, bool(needed))
            paths.setdefault(route.path_format, {})[method.lower()] = described
    used = {OPERATIONS[route.path_format].group for route in served}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tokenwire", "summary": _SUMMARY, "description": _DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas.all,
            "responses": errors.responses,
            "securitySchemes": security.schemes(),
        },
        "tags": [{"name": name, "description": text} for name, text in _GROUPS.items() if name in used],
    }


def _describe(route: ApiRoute, method: str, operation: Operation, schemas: Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [operation.group],
        "summary": operation.summary,
        "operationId": re.sub(r"\W", "_", route.name + route.path_format) + "_" + method.lower(),
        "responses": {"200": {"description": "Done.", **_content(operation, schemas)}},
    }
    if operation.description:
        described["description"] = operation.description
    if route.param_convertors:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.param_convertors
        ]
    if route.body is not None:
        content = {"application/json": {"schema": schemas.of(route.body)}}
        described["requestBody"] = {"content": content, "required": route.body_required}
    if operation.form is not None:
        _describe_form(described, operation.form, method, schemas)
    if operation.example is not None:
        described["requestBody"]["content"]["application/json"]["example"] = operation.example
    return described


def _content(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.media_types:
        return {"content": {name: {} for name in operation.media_types}}
    if operation.response is None:
        return {}
    if operation.response is str:
        return {"content": {"text/plain": {"schema": {"type": "string"}}}}
    content = {"application/json": {"schema": schemas.of(operation.response)}}
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
