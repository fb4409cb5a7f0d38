"""Fields of admin requests, which clients send in the query, in a JSON body, or in both."""

from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from tokenwire.coordinator.api.api_request import InvalidBody, context_of, is_json
from tokenwire.coordinator.api.body_shape import check_shape
from tokenwire.coordinator.api.json_body import parse_json
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import InvalidRequest

Fields = TypeVar("Fields", bound="Form")


class Form(RequestModel):
    """Fields common to all admin requests. Unknown fields are ignored, as in vLLM."""

    model: str | None = None
    """Any name of the model; required only with several models."""


async def read(form: type[Fields], request: Request) -> Fields:
    """Parse a request's fields; the body takes precedence. Raises InvalidRequest or InvalidBody."""
    query = request.query_params
    repeated = {name for name, field in form.model_fields.items() if "list" in str(field.annotation)}
    fields: dict[str, Any] = {name: query.getlist(name) if name in repeated else query[name] for name in query}
    fields.update(await _body(request))
    context_of(request.scope).record.set_body(fields)
    try:
        return form.model_validate(fields)
    except ValidationError as error:
        raise InvalidBody(error.errors()) from error


async def _body(request: Request) -> dict[str, Any]:
    body = await request.body()
    if not body.strip():
        return {}
    if not is_json(request.headers.get("content-type", "")):
        # Browsers let pages of any site send other types without a preflight.
        raise InvalidRequest("Unsupported Media Type: Only 'application/json' is allowed", param="body")
    await check_shape(body)
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from error
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return fields
