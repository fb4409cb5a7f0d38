"""Documents of applications."""

from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette

from tests.coordinator.api.applications import client_of


async def document_of(app: Starlette) -> dict[str, Any]:
    """Return an application's document, fetched without a key."""
    async with client_of(app) as client:
        response = await client.get("/openapi.json")
        assert response.status_code == 200
        document: dict[str, Any] = response.json()
        return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation
