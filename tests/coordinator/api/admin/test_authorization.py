"""Authorization of admin routes, and the parsing of their fields."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.responses import JSONResponse, Response

from tokenwire.cli.options import build
from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.errors import install_error_handlers
from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.settings import ControlSettings
from tokenwire.errors import InvalidRequest

JSON = {"Content-Type": "application/json"}


class Order(Form):
    """Fields of every kind."""

    count: int = 1
    quick: bool = False
    tags: list[str] | None = None


def client_of(key: AdminKey | None) -> TestClient:
    """Return a client of one route that shows what it read."""
    app = FastAPI()
    app.add_middleware(RequestMiddleware)
    gate = AdminAuthorization(key)
    router = gate.router()

    @router.post("/call", dependencies=[Depends(gate.require_key)])
    async def call() -> Response:
        return Response()

    @router.post("/order")
    async def order(request: Request) -> Response:
        return JSONResponse((await read(Order, request)).model_dump())

    app.include_router(router)
    install_error_handlers(app)
    return TestClient(app)


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client where no key is needed."""
    with client_of(None) as client:
        yield client


def test_fields_come_by_query_body_or_both(client: TestClient) -> None:
    """The body counts before the query; nothing at all means the defaults; unknown fields are ignored."""
    nothing = {"model": None, "count": 1, "quick": False, "tags": None}
    assert client.post("/order").json() == nothing
    assert client.post("/order", json=None, params={"other": 1}).json() == nothing
    answer = client.post("/order?count=2&quick=true&tags=a&tags=b", json={"count": 3})

    assert answer.json() == {"model": None, "count": 3, "quick": True, "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("content", "query", "message"),
    [
        ("{", "", "not JSON"),
        ("[1]", "", "must be a JSON object"),
        ("", "?count=many", "count"),
        ('{"quick": "perhaps"}', "", "quick"),
    ],
)
def test_wrong_fields_are_named(client: TestClient, content: str, query: str, message: str) -> None:
    """A 400 in OpenAI's shape says what was wrong."""
    answer = client.post(f"/order{query}", content=content, headers=JSON)

    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_a_body_is_json_and_says_so(client: TestClient, kind: str) -> None:
    """Browsers let a page of any site send what is none. With its parameters, or as one of JSON's kin, it is one."""
    refused = client.post("/order", content='{"count": 3}', headers={"Content-Type": kind} if kind else {})
    taken = [
        client.post("/order", content='{"count": 3}', headers={"Content-Type": json})
        for json in ("application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json")
    ]

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "body")
    assert "application/json" in refused.json()["error"]["message"]
    assert [answer.json()["count"] for answer in taken] == [3, 3, 3]


@pytest.mark.parametrize("key", [None, "sesame"])
@pytest.mark.parametrize("path", ["/order", "/order?count=2", "/call"])
def test_cross_site_requests_are_forbidden(key: str | None, path: str) -> None:
    """Even without a body, which needs no type; our own page may."""
    authorization = {"Authorization": f"Bearer {key}"}
    with client_of(AdminKey(key) if key else None) as client:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            answer = client.post(path, headers=authorization | headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (403, "PermissionDeniedError")

        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
        assert client.post("/order", headers=authorization | own).status_code == 200


def test_some_routes_are_closed_without_an_admin_key(client: TestClient) -> None:
    """They require the admin key, and are closed without one."""
    refused = client.post("/call")
    assert refused.status_code == 403
    assert "--admin-key-file" in refused.json()["error"]["message"]

    with client_of(AdminKey("sesame")) as guarded:
        assert guarded.post("/call").status_code == 401
        assert guarded.post("/call", headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_an_admin_key_is_asked_for() -> None:
    """Without it, with another one, or in another scheme the answer is 401, and nothing was read; with it, 200."""
    with client_of(AdminKey("sesame")) as client:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic sesame"}):
            answer = client.post("/order", headers=headers, content="{")
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["error"]["type"] == "AuthenticationError"

        assert client.post("/order", headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_a_key_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    """The file counts first; its line end is no part of the key; an empty key is an error, not an open door."""
    path = tmp_path / "key"
    path.write_text("sesame\n")
    environment = {"TOKENWIRE_ADMIN_KEY": "other"}
    from_file = build(ControlSettings, {"--admin-key-file": path}, environment).admin_key
    from_environment = build(ControlSettings, {}, environment).admin_key

    assert from_file is not None
    assert from_file.matches("sesame")
    assert from_environment is not None
    assert from_environment.matches("other")
    assert build(ControlSettings, {}, {}).admin_key is None
    path.write_text("\n")
    with pytest.raises(InvalidRequest, match="empty"):
        build(ControlSettings, {"--admin-key-file": path}, {})


def test_a_key_does_not_show() -> None:
    """Neither in logs nor in tracebacks."""
    assert "sesame" not in f"{AdminKey('sesame')} {AdminKey('sesame')!r}"
