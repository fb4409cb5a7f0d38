"""Fields of admin requests."""

from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.testclient import TestClient

from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.api.router import ApiApplication, ApiRouter

JSON = {"Content-Type": "application/json"}


class Order(Form):
    """Fields of all types."""

    count: int = 1
    quick: bool = False
    tags: list[str] | None = None


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A client of a route that returns the fields that it read."""
    app = ApiApplication()
    app.add_middleware(RequestMiddleware)
    router = ApiRouter()

    @router.post("/order")
    async def order(request: Request) -> Response:
        return JSONResponse((await read(Order, request)).model_dump())

    app.routes.extend(router.routes)
    with TestClient(app) as client:
        yield client


def test_fields_come_from_the_query_the_body_or_both(client: TestClient) -> None:
    """The body takes precedence; without either the defaults apply; unknown fields are ignored."""
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
    """A 400 in OpenAI's format names the field."""
    answer = client.post(f"/order{query}", content=content, headers=JSON)

    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
def test_a_body_must_declare_json(client: TestClient, kind: str) -> None:
    """Browsers let pages of any site send other types. Parameters and +json types are accepted."""
    rejected = client.post("/order", content='{"count": 3}', headers={"Content-Type": kind} if kind else {})
    taken = [
        client.post("/order", content='{"count": 3}', headers={"Content-Type": json})
        for json in ("application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json")
    ]

    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "body")
    assert "application/json" in rejected.json()["error"]["message"]
    assert [answer.json()["count"] for answer in taken] == [3, 3, 3]
