"""Routes: what comes before their handlers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.testclient import TestClient

from tokenwire.coordinator.api.api_request import context_of
from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.api.router import ApiApplication, ApiRouter
from tokenwire.errors import DeadlineExceeded, Forbidden


class Amount(BaseModel):
    """A body."""

    count: int = 1


async def begin() -> AsyncIterator[str]:
    """Fail after the response has begun."""
    yield "some"
    raise Forbidden("Closed.")


async def forbid(request: Request) -> None:
    """Let nobody pass."""
    raise Forbidden("Closed.")


@pytest.fixture
def client() -> TestClient:
    """A client of an open route for bodies, one that needs none, and a closed one."""
    router, closed = ApiRouter(), ApiRouter(guards=[forbid])

    @router.post("/order", Amount)
    @router.post("/order", Amount, method="PUT")
    @router.post("/perhaps", Amount, body_required=False)
    @closed.post("/closed", Amount)
    async def order(body: Amount, request: Request) -> Response:
        return JSONResponse(body.count)

    @router.get("/hello")
    async def hello(request: Request) -> Response:
        return Response("hello")

    @router.get("/broken")
    async def broken(request: Request) -> Response:
        raise ValueError("broken")

    @router.get("/half")
    async def half(request: Request) -> Response:
        return StreamingResponse(begin())

    @router.get("/of/{name}")
    async def of(request: Request) -> Response:
        return Response(request.path_params["name"])

    @router.get("/of/all")
    async def of_all(request: Request) -> Response:
        return Response("never")

    router.include(closed)
    app = ApiApplication(routes=router.routes)
    app.add_middleware(RequestMiddleware)
    return TestClient(app)


def test_handlers_get_the_body_as_its_model(client: TestClient) -> None:
    """With its defaults."""
    assert client.post("/order", json={"count": 3}).json() == 3
    assert client.put("/order", json={}).json() == 1


@pytest.mark.parametrize(
    ("content", "content_type", "message"),
    [
        ("", "application/json", "body: Field required"),
        ("null", "application/json", "body: Field required"),
        ("{", "application/json", "JSON decode error"),
        (b'{"count": "\xff"}', "application/json", "There was an error parsing the body"),
        ('{"count": ' + "9" * 5000 + "}", "application/json", "There was an error parsing the body"),
        ("[1]", "application/json", "valid dictionary"),
        ('{"count": "many"}', "application/json", "count: Input should be a valid integer"),
        ('{"count": 2}', "text/plain", "Only 'application/json' is allowed"),
        ('{"count": 2}', "", "Only 'application/json' is allowed"),
        ("[" * 100_000, "application/json", "nested too deeply"),
    ],
    ids=["none", "null", "no JSON", "no text", "long number", "list", "wrong", "other type", "no type", "deep"],
)
def test_other_bodies_are_rejected(client: TestClient, content: str | bytes, content_type: str, message: str) -> None:
    """With what is wrong."""
    headers = {"Content-Type": content_type} if content_type else {}
    rejected = client.post("/order", content=content, headers=headers)

    assert rejected.status_code == 400
    assert message in rejected.json()["error"]["message"]


def test_types_of_json_are_accepted(client: TestClient) -> None:
    """With parameters, in any case, and those that are JSON by their suffix."""
    for kind in ("application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"):
        assert client.post("/order", content='{"count": 2}', headers={"Content-Type": kind}).json() == 2


def test_a_body_may_be_left_out_where_none_is_required(client: TestClient) -> None:
    """Then it has its defaults; a wrong one is rejected all the same."""
    assert client.post("/perhaps").json() == 1
    assert client.post("/perhaps", json={"count": 2}).json() == 2
    assert client.post("/perhaps", json={"count": "many"}).status_code == 400


def test_guards_come_before_bodies(client: TestClient) -> None:
    """Whoever may not use a route gets no opinion of the body."""
    assert client.post("/closed", content="{").status_code == 403


async def test_routes_without_guards_answer_by_the_deadline() -> None:
    """Of the body too, which may never end. Operations on workers, which guards protect, are not left half done."""

    async def let_pass(request: Request) -> None:
        """Let everybody pass."""

    router, operations = ApiRouter(), ApiRouter(guards=[let_pass])

    @router.post("/wait", Amount)
    async def wait(body: Amount, request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError("it did not wait")

    @operations.post("/operation", Amount)
    async def operation(body: Amount, request: Request) -> Response:
        context = context_of(request.scope)
        with suppress(DeadlineExceeded):
            while True:
                context.time_left_s()
                await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return Response("done")

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    router.include(operations)
    app = ApiApplication(routes=router.routes)
    app.add_middleware(RequestMiddleware)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test", headers={"X-Request-Timeout": "0.05"}
    ) as client:
        for waiting in (client.post("/wait", json={}), client.post("/wait", content=endless())):
            late = await waiting
            assert (late.status_code, late.json()["error"]["message"]) == (504, "Request timed out after 0.05 s.")
        assert (await client.post("/operation", json={})).text == "done"


def test_only_the_methods_of_a_route_are_allowed(client: TestClient) -> None:
    """HEAD is not among them: vLLM does not allow it either."""
    assert client.get("/hello").text == "hello"
    assert [client.request(method, "/hello").status_code for method in ("HEAD", "POST")] == [405, 405]


def test_what_nobody_expected_is_a_500_and_raised(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """The client learns nothing of it, the log and the server do."""
    rejected = TestClient(client.app, raise_server_exceptions=False).get("/broken")

    assert (rejected.status_code, rejected.json()["error"]["message"]) == (500, "Internal server error")
    assert "GET /broken failed" in caplog.text
    with pytest.raises(ValueError, match="broken"):
        client.get("/broken")


def test_an_error_in_a_response_that_has_begun_is_raised(client: TestClient) -> None:
    """The server closes the connection: a second response would be taken for a part of the first."""
    with pytest.raises(Forbidden):
        client.get("/half")


def test_routes_are_found_in_their_order(client: TestClient) -> None:
    """A path that a route with parameters before it matches is not found by itself."""
    assert client.get("/of/all").text == "all"
    assert client.get("/of/one").text == "one"
    assert client.get("/hello/").text == "hello"
