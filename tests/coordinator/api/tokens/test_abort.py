"""The abort routes and their authorization."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.api.router import ApiApplication
from tokenwire.coordinator.api.tokens.abort import abort_routes
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.output.settings import ApiSettings


class RecordedAborts:
    """Records aborts."""

    def __init__(self) -> None:
        self.ended: list[list[str] | None] = []

    async def by_id(self, request_ids: list[str]) -> int:
        """Record the ids."""
        self.ended.append(request_ids)
        return 2

    async def everything(self) -> int:
        """Record it."""
        self.ended.append(None)
        return 5


@pytest.fixture
def aborts() -> RecordedAborts:
    """The aborts recorded by the routes."""
    return RecordedAborts()


def abort_client(aborts: RecordedAborts, abort_all: bool, key: AdminKey | None = None) -> Iterator[TestClient]:
    """Return a client of the routes."""
    app = ApiApplication()
    app.add_middleware(RequestMiddleware)
    app.routes.extend(abort_routes(aborts, ApiSettings(abort_all=abort_all), AdminAuthorization(key)).routes)
    with TestClient(app) as client:
        yield client


@pytest.fixture
def client(aborts: RecordedAborts) -> Iterator[TestClient]:
    """A client that may not abort the requests of others."""
    yield from abort_client(aborts, abort_all=False)


@pytest.fixture
def trainer(aborts: RecordedAborts) -> Iterator[TestClient]:
    """A client that may abort everything."""
    yield from abort_client(aborts, abort_all=True)


def test_ids_are_passed_on(client: TestClient, aborts: RecordedAborts) -> None:
    """As vLLM's, one route has an empty response, the other one a count."""
    body = {"request_ids": ["a", "b"]}

    first = client.post("/inference/v1/abort_requests", json=body)
    second = client.post("/abort_requests", json=body)

    assert (first.status_code, first.content) == (200, b"")
    assert second.json() == {"status": "aborted", "aborted": 2}
    assert aborts.ended == [["a", "b"], ["a", "b"]]


def test_ids_are_required(client: TestClient, aborts: RecordedAborts) -> None:
    """Without them the error names them, and nothing is aborted."""
    response = client.post("/inference/v1/abort_requests", json={})

    assert (response.status_code, response.json()["error"]["param"]) == (400, "request_ids")
    assert aborts.ended == []


@pytest.mark.parametrize("body", [{}, {"request_ids": []}, {"request_ids": None}])
def test_aborting_everything_must_be_enabled(
    client: TestClient, trainer: TestClient, aborts: RecordedAborts, body: dict[str, object]
) -> None:
    """Without ids everything is aborted if that is enabled."""
    assert client.post("/abort_requests", json=body).status_code == 403
    assert aborts.ended == []

    assert trainer.post("/abort_requests", json=body).json() == {"status": "aborted", "aborted": 5}
    assert trainer.post("/abort_requests").json()["aborted"] == 5


def test_sglang_names_one_request_or_all(client: TestClient, trainer: TestClient, aborts: RecordedAborts) -> None:
    """A rid, or everything if enabled; nothing by mistake."""
    assert client.post("/abort_request", json={"rid": "a"}).status_code == 200
    assert client.post("/abort_request", json={}).status_code == 400
    assert client.post("/abort_request", json={"rid": "a", "abort_all": True}).status_code == 403
    assert aborts.ended == [["a"]]

    assert trainer.post("/abort_request", json={"abort_all": True}).status_code == 200
    assert aborts.ended == [["a"], None]


@pytest.mark.parametrize(("path", "body"), [("/abort_requests", {}), ("/abort_request", {"abort_all": True})])
def test_an_admin_key_guards_everything(aborts: RecordedAborts, path: str, body: dict[str, object]) -> None:
    """Single requests are aborted without it."""
    for guarded in abort_client(aborts, abort_all=True, key=AdminKey("secret")):
        assert guarded.post(path, json=body).status_code == 401
        assert aborts.ended == []
        headers = {"Authorization": "Bearer secret"}
        assert guarded.post(path, json=body, headers=headers).status_code == 200
        assert guarded.post("/abort_request", json={"rid": "a"}).status_code == 200
