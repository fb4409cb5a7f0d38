"""Authorization of admin routes."""

from collections.abc import Iterator

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization, is_cross_site
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.api.router import ApiApplication
from tokenwire.coordinator.auth.admin_key import AdminKey

JSON = {"Content-Type": "application/json"}


def guarded_client(key: AdminKey | None) -> TestClient:
    """Return a client of two guarded routes."""
    app = ApiApplication()
    app.add_middleware(RequestMiddleware)
    authorization = AdminAuthorization(key)
    router = authorization.router()

    @router.post("/call", guards=[authorization.require_key])
    async def call(request: Request) -> Response:
        return Response()

    @router.post("/order")
    async def order(request: Request) -> Response:
        return JSONResponse((await read(Form, request)).model_dump())

    app.routes.extend(router.routes)
    return TestClient(app)


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client of routes without a key."""
    with guarded_client(None) as client:
        yield client


@pytest.mark.parametrize("key", [None, "sesame"])
@pytest.mark.parametrize("path", ["/order", "/order?count=2", "/call"])
def test_cross_site_requests_are_forbidden(key: str | None, path: str) -> None:
    """Even without a body, which needs no content type; our own page is allowed."""
    authorization = {"Authorization": f"Bearer {key}"}
    with guarded_client(AdminKey(key) if key else None) as client:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            answer = client.post(path, headers=authorization | headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (403, "PermissionDeniedError")

        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
        assert client.post("/order", headers=authorization | own).status_code == 200


def test_some_routes_are_disabled_without_an_admin_key(client: TestClient) -> None:
    """They require the admin key, and are disabled without one."""
    rejected = client.post("/call")
    assert rejected.status_code == 403
    assert "--admin-key-file" in rejected.json()["error"]["message"]

    with guarded_client(AdminKey("sesame")) as guarded:
        assert guarded.post("/call").status_code == 401
        assert guarded.post("/call", headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_the_admin_key_is_required() -> None:
    """Without it, with another one, or in another scheme: 401, and the body is not read; with it, 200."""
    with guarded_client(AdminKey("sesame")) as client:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic sesame"}):
            answer = client.post("/order", headers=headers, content="{")
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] == "AuthenticationError"

        assert client.post("/order", headers={"Authorization": "Bearer sesame"}).status_code == 200


HOST = {"host": "localhost:8000"}


@pytest.mark.parametrize(
    ("headers", "cross_site"),
    [
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "https://behind-a-proxy.example"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:3000"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"origin": "http://localhost:8000"}, False),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": ""}, True),
    ],
)
def test_cross_site_requests_are_detected(headers: dict[str, str], cross_site: bool) -> None:
    """Newer browsers send fetch metadata, older ones Origin; other clients send neither."""
    assert is_cross_site(Headers(HOST | headers)) is cross_site
