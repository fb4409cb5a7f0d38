"""Authentication by API keys, and their limits, in front of an application."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.api.middleware import Authenticator, RequestMiddleware
from tokenwire.coordinator.auth.api_keys import ApiKeys, parse_keys
from tokenwire.coordinator.generation.context import CONTEXT

KEYS = """[
  {"tenant": "search", "key": "sesame", "tokens_per_minute": 100, "weight": 2},
  {"tenant": "single", "key": "one", "max_concurrent": 1}
]"""


class Application:
    """Records and charges its callers; its responses can be delayed."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.entered = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        """Answer."""
        self.entered.set()
        await self.go_on.wait()
        caller = request.scope[CONTEXT].caller
        tokens = len(await request.body())
        if tokens:
            (await caller.account.reserve(1)).settle(tokens)
        return JSONResponse({"tenant": caller.tenant, "weight": caller.weight})

    async def admin(self, request: Request) -> Response:
        """Respond; this route would have its own key."""
        return Response()


def client_with_keys(application: Application) -> httpx.AsyncClient:
    """Return a client of the application behind the check."""
    admin_routes = [Route("/pause", application.admin, methods=["POST"])]
    routes = [Route(path, application.handle, methods=["GET", "POST"]) for path in ("/v1/messages", "/v1/models")]
    routes.append(Route("/health", application.handle))
    authenticator = Authenticator(lambda: ApiKeys(parse_keys(KEYS, "test")), guarded=admin_routes)
    app = RequestMiddleware(Router([*routes, *admin_routes]), authenticator=authenticator)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer sesame"},
        {"authorization": "bearer  sesame "},
        {"x-api-key": "sesame"},
        {"Authorization": "Bearer admin", "x-api-key": "sesame"},
    ],
)
async def test_a_valid_key_is_accepted(headers: dict[str, str]) -> None:
    """As OpenAI's or Anthropic's clients send it; the route gets its tenant with its weight."""
    async with client_with_keys(Application()) as client:
        answer = await client.post("/v1/messages", headers=headers)

    assert answer.json() == {"tenant": "search", "weight": 2}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sesame"}])
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/messages"), ("GET", "/v1/models"), ("GET", "/nowhere")])
async def test_without_a_key_nothing_is_accessible(headers: dict[str, str], method: str, path: str) -> None:
    """401 in the route's format, whether the route exists or not."""
    async with client_with_keys(Application()) as client:
        answer = await client.request(method, path, headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    kind = "authentication_error" if path == "/v1/messages" else "AuthenticationError"
    assert answer.json()["error"]["type"] == kind
    assert "wrong" not in answer.text


async def test_probes_and_admin_routes_need_no_api_key() -> None:
    """Health needs none, and admin routes require their own; another method of their path is not an admin route."""
    async with client_with_keys(Application()) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.post("/pause")).status_code == 200
        assert (await client.get("/pause")).status_code == 401


@pytest.mark.parametrize(
    ("declared", "closes"), [((b"content-length", b"12"), False), ((b"content-length", b"99999999"), True)]
)
async def test_a_rejected_body_is_not_read(declared: tuple[bytes, bytes], closes: bool) -> None:
    """Without a key the body is not read, and a long one is not even received."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        sent.append(message)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("the application was reached")

    app: ASGIApp = application
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/x", "headers": [declared]}
    await RequestMiddleware(app, authenticator=Authenticator(lambda: ApiKeys([])))(scope, receive, send)

    assert sent[0]["status"] == 401
    assert ((b"connection", b"close") in sent[0]["headers"]) == closes


async def test_concurrent_requests_are_limited() -> None:
    """429 with Retry-After at the key's limit; afterwards requests are accepted again."""
    application = Application()
    application.go_on.clear()
    async with client_with_keys(application) as client:
        headers = {"x-api-key": "one"}
        running = asyncio.create_task(client.post("/v1/messages", headers=headers))
        await application.entered.wait()

        rejected = await client.post("/v1/messages", headers=headers)
        listed = asyncio.create_task(client.get("/v1/models", headers=headers))
        application.go_on.set()

        assert rejected.status_code == 429
        assert rejected.headers["retry-after"] == "1"
        assert (await running).status_code == (await listed).status_code == 200
        assert (await client.post("/v1/messages", headers=headers)).status_code == 200


async def test_tokens_are_charged() -> None:
    """Tokens count against the key's limit per minute, and headers have the rest."""
    async with client_with_keys(Application()) as client:
        headers = {"x-api-key": "sesame"}
        first = await client.post("/v1/messages", headers=headers, content=b"x" * 70)
        await client.post("/v1/messages", headers=headers, content=b"x" * 70)
        rejected = await client.post("/v1/messages", headers=headers)

    assert first.headers["x-ratelimit-limit-tokens"] == "100"
    assert first.headers["x-ratelimit-remaining-tokens"] == "30"
    assert re.fullmatch("[1-9][0-9]s", first.headers["x-ratelimit-reset-tokens"])
    assert rejected.status_code == 429
    assert int(rejected.headers["retry-after"]) >= 20
    assert rejected.headers["x-ratelimit-remaining-tokens"] == "0"
