"""Error responses of routes in the document."""

from tests.coordinator.api.applications import all_routes
from tests.coordinator.api.openapi.documents import document_of, operations
from tokenwire.coordinator.api.openapi.errors import ErrorResponses
from tokenwire.coordinator.api.openapi.operation import Operation
from tokenwire.coordinator.api.openapi.operations import OPERATIONS
from tokenwire.coordinator.api.openapi.schemas import Schemas
from tokenwire.coordinator.app import build_app
from tokenwire.errors import PoisonRequest


async def test_malformed_bodies_are_described_as_400() -> None:
    """Malformed bodies are a 400 in the route's format, never a 422, which is for requests that kill workers."""
    for path, method, operation in operations(await document_of(build_app(all_routes("127.0.0.1:1")))):
        kind = "AnthropicError" if path.startswith("/v1/messages") else "Error"
        poison = {"$ref": f"#/components/responses/{kind}{PoisonRequest.http_status}"}
        assert operation["responses"].get("422") == (poison if OPERATIONS[path].generates else None), path
        if method == "post":
            assert operation["responses"]["400"] == {"$ref": f"#/components/responses/{kind}400"}


def test_each_error_is_described_once() -> None:
    """Routes refer to it; those that are retried name the header."""
    errors = ErrorResponses(Schemas())

    first = errors.of(Operation("OpenAI", "x", generates=True), "POST", requires_key=True)
    errors.of(Operation("OpenAI", "y", generates=True), "POST", requires_key=False)

    assert first["429"] == {"$ref": "#/components/responses/Error429"}
    assert errors.responses.keys() == {f"Error{status}" for status in first}
    assert [name for name, response in errors.responses.items() if "headers" in response] == ["Error429", "Error503"]


def test_errors_depend_on_what_a_route_does() -> None:
    """Reading needs no engine and has no body."""
    errors = ErrorResponses(Schemas())

    reads = errors.of(Operation("Service", "x", str), "GET", requires_key=False)
    generates = errors.of(Operation("Anthropic", "y", str, generates=True), "POST", requires_key=True)

    assert list(reads) == ["500"]
    assert list(generates) == ["400", "401", "403", "404", "413", "415", "422", "429", "500", "503", "504"]
    assert set(reads["500"].values()) == {"#/components/responses/Error500"}
    assert generates["500"] == {"$ref": "#/components/responses/AnthropicError500"}
