"""What holds for every route of the application, whatever is turned on."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from coordinator.app import build_app
from coordinator.settings import ApiSettings, ControlSettings, CoordinatorSettings

EVERYTHING = CoordinatorSettings(
    ("127.0.0.1:1",),
    api=ApiSettings(abort_all=True, render_route=True),
    control=ControlSettings(rl_routes=True, lora_routes=True),
)
BODY = (
    '{"model": "m", "messages": [{"role": "user", "content": "x"}], "prompt": "x", "abort_all": true, "mode": "keep"}'
)
SIMPLE = [{"Content-Type": kind} for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")]


def client_of(settings: CoordinatorSettings) -> httpx.AsyncClient:
    """Return a client of an application without workers."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(build_app(settings)), base_url="http://localhost:8000")


def writes() -> list[tuple[str, str]]:
    """Return all that changes or makes something, by method and path."""
    routes = [route for route in build_app(EVERYTHING).routes if isinstance(route, APIRoute)]
    return [(method, route.path) for route in routes for method in sorted(route.methods - {"GET", "HEAD", "OPTIONS"})]


@pytest.mark.parametrize("headers", [{}, *SIMPLE], ids=lambda headers: headers.get("Content-Type", "no type"))
async def test_pages_of_other_sites_get_nothing_done(headers: dict[str, str]) -> None:
    """What browsers send for them unasked is refused on every route, before anybody looks for a worker."""
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", **headers}
    found = writes()
    async with client_of(EVERYTHING) as client:
        asked = [
            client.request(method, path, headers=foreign, content=body) for method, path in found for body in (BODY, "")
        ]
        statuses = [reply.status_code for reply in await asyncio.gather(*asked)]

    assert ("POST", "/pause") in found
    assert ("POST", "/v1/chat/completions") in found
    assert all(400 <= status < 500 for status in statuses), statuses


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({}, "localhost:8000", 200),
        ({}, "evil.example:8000", 403),
        ({"host": "::1"}, "evil.example", 403),
        ({"host": "0.0.0.0"}, "llm.example", 200),
        ({"host": "0.0.0.0", "allowed_hosts": ("llm.example",)}, "evil.example", 403),
        ({"allowed_hosts": ("llm.example",)}, "llm.example", 200),
    ],
)
async def test_names_are_checked_on_loopback_and_where_they_are_given(
    settings: dict[str, Any], host: str, status: int
) -> None:
    """Elsewhere nobody knows by which names a server is reached."""
    async with client_of(replace(EVERYTHING, **settings)) as client:
        assert (await client.get("/version", headers={"Host": host})).status_code == status
