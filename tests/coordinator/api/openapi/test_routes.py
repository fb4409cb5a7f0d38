"""The routes that describe the others."""

from tests.coordinator.api.applications import all_routes, client_of
from tokenwire.coordinator.api.openapi.routes import DOCUMENTATION_PATHS
from tokenwire.coordinator.app import build_app


async def test_the_documentation_is_not_part_of_the_document() -> None:
    """It describes the service, not itself."""
    async with client_of(build_app(all_routes("127.0.0.1:1"))) as client:
        document = (await client.get("/openapi.json")).json()
        files = {path: (await client.get(path)).status_code for path in DOCUMENTATION_PATHS}

    assert not DOCUMENTATION_PATHS & document["paths"].keys()
    assert set(files.values()) == {200}
