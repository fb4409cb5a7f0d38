"""Applications without a server, shared by tests of routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from starlette.applications import Starlette

from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.settings import CoordinatorSettings


def with_api_key(settings: CoordinatorSettings, folder: Path) -> CoordinatorSettings:
    """Return the same settings with an API key."""
    (file := folder / "keys").write_text("tenant sesame\n")
    return replace(settings, auth=AuthSettings(file))


@asynccontextmanager
async def client_of(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application; yield a client."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        yield client
