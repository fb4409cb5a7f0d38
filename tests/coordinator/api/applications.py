"""Applications without a server, shared by tests of routes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
from starlette.applications import Starlette

from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.response_store.settings import ResponseStoreSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings


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


def all_routes(address: str) -> CoordinatorSettings:
    """Return settings with all routes enabled."""
    return CoordinatorSettings(
        (address,),
        api=ApiSettings(render_route=True, abort_all=True),
        admin=AdminSettings(admin_key=AdminKey("open"), lora_routes=True, rl_routes=True),
        trajectories=TrajectorySettings(enabled=True),
    )


@asynccontextmanager
async def served(
    folder: Path,
    workers: int = 1,
    api: ApiSettings | None = None,
    auth: AuthSettings | None = None,
    failover: FailoverSettings | None = None,
    responses: ResponseStoreSettings | None = None,
    trajectories: TrajectorySettings | None = None,
    **simulation: object,
) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application with all routes in front of simulated workers; yield a client with the admin key."""
    addresses = [unix_address(folder, f"worker-{number}") for number in range(workers)]
    settings = replace(all_routes(addresses[0]), workers=tuple(addresses))
    settings = replace(settings, api=api or settings.api, auth=auth or settings.auth)
    settings = replace(settings, response_store=responses or settings.response_store)
    settings = replace(settings, trajectories=trajectories or settings.trajectories)
    app = build_app(replace(settings, failover=failover or settings.failover))
    pool: WorkerPool = app.state.pool
    async with AsyncExitStack() as running:
        for address in addresses:
            await running.enter_async_context(running_worker(address, **simulation))  # type: ignore[arg-type]
        client = await running.enter_async_context(client_of(app))
        await until(lambda: pool.is_ready() and all(session.control is not None for session in pool.sessions))
        client.headers["Authorization"] = "Bearer open"
        yield client
