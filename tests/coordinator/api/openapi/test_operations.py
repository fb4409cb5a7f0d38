"""The metadata of routes is true of the routes."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.coordinator.api.applications import all_routes, client_of
from tests.coordinator.api.openapi.documents import document_of, operations
from tests.summaries import REPLY_RULES
from tests.workers import running_worker, unix_address, until
from tokenwire.coordinator.api.openapi.operations import OPERATIONS
from tokenwire.coordinator.api.openapi.routes import DOCUMENTATION_PATHS
from tokenwire.coordinator.api.router import ApiRoute
from tokenwire.coordinator.api.status_page.routes import PAGE_PATHS
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool


async def test_every_route_is_in_it() -> None:
    """Everything served is described except the files of pages, and nothing else is."""
    app = build_app(all_routes("127.0.0.1:1"))
    described = {(path, method.upper()) for path, method, _ in operations(await document_of(app))}
    files = PAGE_PATHS | DOCUMENTATION_PATHS
    routes = [route for route in app.routes if isinstance(route, ApiRoute)]

    assert described == {
        (route.path_format, method) for route in routes if route.path not in files for method in route.methods
    }
    assert {path for path, _ in described} == set(OPERATIONS)


async def test_examples_succeed(tmp_path: Path) -> None:
    """The page's initial bodies are valid."""
    address, other, third = (unix_address(tmp_path, name) for name in ("simulated", "embedder", "classifier"))
    app = build_app(replace(all_routes(address), workers=(address, other, third)))
    pool: WorkerPool = app.state.pool
    embedder = running_worker(other, served_model_names=("embedder",), embedding_width=4)
    classes: dict[str, Any] = {"embedding_width": 3, "pooling_task": "classify"}
    async with (
        AsyncExitStack() as running,
        running_worker(address, replies=REPLY_RULES),
        embedder,
        client_of(app) as client,
    ):
        await until(lambda: sum(session.control is not None for session in pool.sessions) == 2)
        late = running_worker(third, served_model_names=("classifier",), **classes)
        await running.enter_async_context(late)
        await until(lambda: sum(session.control is not None for session in pool.sessions) == 3)
        for path, operation in OPERATIONS.items():
            if operation.example is not None:
                named = operation.example.get("model")
                model = {"model": named if named == "classifier" else "simulated"} if named else {}
                body = {**operation.example, **model}
                response = await client.post(path, json=body)
                assert response.status_code == 200, f"{path}: {response.text}"
