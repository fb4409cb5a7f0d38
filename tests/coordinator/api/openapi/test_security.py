"""The document states which routes require which key."""

from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.coordinator.api.applications import all_routes, with_api_key
from tests.coordinator.api.openapi.documents import document_of, operations
from tokenwire.coordinator.api.openapi.security import Security
from tokenwire.coordinator.api.router import ApiRoute, ApiRouter
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.settings import CoordinatorSettings


async def test_it_has_the_required_keys(tmp_path: Path) -> None:
    """Keys are required if there are any, the admin key by admin routes, none by probes."""
    free = await document_of(build_app(CoordinatorSettings(("127.0.0.1:1",))))
    paths_with_keys = (await document_of(build_app(with_api_key(all_routes("127.0.0.1:1"), tmp_path))))["paths"]

    assert free["components"]["securitySchemes"] == {}
    assert all(operation["security"] == [] for _, _, operation in operations(free))
    assert paths_with_keys["/v1/messages"]["post"]["security"] == [{"apiKey": []}, {"apiKeyHeader": []}]
    assert paths_with_keys["/v1/rl/state"]["get"]["security"] == [{"adminKey": []}]
    assert paths_with_keys["/metrics"]["get"]["security"] == []
    assert "401" in paths_with_keys["/pause"]["post"]["responses"]


@pytest.mark.parametrize(
    ("api_key", "admin_key", "path", "schemes"),
    [
        (False, False, "/v1/models", []),
        (True, False, "/v1/models", ["apiKey", "apiKeyHeader"]),
        (True, True, "/health", []),
        (True, True, "/pause", ["adminKey"]),
        (True, False, "/pause", []),
    ],
)
def test_a_route_needs_a_key_if_there_is_one(api_key: bool, admin_key: bool, path: str, schemes: list[str]) -> None:
    """The admin key guards admin routes, API keys all others that are not free."""
    security = Security(api_key, admin_key, {"/health"}, lambda route: route.path == "/pause")
    router = ApiRouter()

    @router.get(path)
    async def answer(request: Request) -> Response:
        return Response()

    (route,) = router.routes
    assert isinstance(route, ApiRoute)
    assert [name for alternative in security.needed(route) for name in alternative] == schemes
    assert set(schemes) <= security.schemes().keys()
