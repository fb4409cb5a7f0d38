"""The host names that a server on loopback accepts."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tokenwire.coordinator.api.middleware import RequestMiddleware
from tokenwire.coordinator.auth.allowed_hosts import AllowedHosts, is_loopback


async def answer(request: Request) -> Response:
    """Respond to any request."""
    return PlainTextResponse("ok")


def client_of(*allowed: str) -> httpx.AsyncClient:
    """Return a client of a server behind the check."""
    app = RequestMiddleware(Starlette(routes=[Route("/", answer)]), allowed_hosts=AllowedHosts(allowed))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LocalHost:8000", "localhost.", "app.localhost:80", "host.docker.internal:8000"),
        *("127.0.0.1:8000", "127.8.9.1", "[::1]:8000", "[::1]", "192.168.1.7:8000", "", "llm.example:8000"),
    ],
)
async def test_own_names_and_addresses_are_accepted(host: str) -> None:
    """They do not involve DNS; names allowed by the operator are accepted too."""
    async with client_of("llm.example") as client:
        assert (await client.get("/", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "[evil.example]"]
)
async def test_a_name_that_resolves_to_this_machine_is_refused(host: str) -> None:
    """To a browser, a page of that name has the same origin as this server."""
    async with client_of("llm.example") as client:
        reply = await client.get("/", headers={"Host": host})

    assert reply.status_code == 403
    assert "--allowed-host" in reply.json()["error"]["message"]


async def test_every_host_header_is_checked() -> None:
    """However many there are."""
    async with client_of() as client:
        reply = await client.get("/", headers=[("Host", "localhost"), ("Host", "evil.example")])

    assert reply.status_code == 403


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.0.1.1", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.7", False)],
)
def test_loopback_addresses_are_detected(address: str, loopback: bool) -> None:
    """As reported by sockets."""
    assert is_loopback(address) is loopback
