"""GET /health, /version, /metrics, /v1/models."""

import time
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire import __version__
from tokenwire.coordinator.api.metrics_page import MetricsPages, PageResponse
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.metrics.exposition import CONTENT_TYPE
from tokenwire.coordinator.observability.metrics.metrics import Metrics
from tokenwire.errors import Unavailable


def service_routes(
    pool: WorkerPool, models: ModelDirectory, readiness: Readiness, metrics: Metrics, says_ok: bool = False
) -> ApiRouter:
    """Return the routes of the service itself; `says_ok`: whether /health has a body, which rLLM's client reads."""
    router = ApiRouter()
    started = int(time.time())
    pages = MetricsPages(metrics.text, time.monotonic)

    @router.get("/health")
    @router.get("/health/")
    async def health(request: Request) -> Response:
        if readiness.stopping:
            raise Unavailable("This coordinator is shutting down.", retry_after_s=1)
        if not pool.is_ready():
            reasons = [
                f"{session.address}: {session.last_error if session.control is None else pool.out_of_sync(session)}"
                for session in pool.sessions
            ]
            raise Unavailable(f"No worker is ready: {'; '.join(reasons) or 'no workers found'}", retry_after_s=2)
        return JSONResponse({"status": "ok"}) if says_ok else Response()

    @router.get("/version")
    async def version(request: Request) -> Response:
        return JSONResponse({"version": __version__})

    @router.get("/metrics")
    async def show_metrics(request: Request) -> Response:
        return PageResponse(pages, await pages.current(), CONTENT_TYPE)

    @router.get("/v1/models")
    async def list_models(request: Request) -> Response:
        card = partial(_card, started)
        data = [card(name, it.root, None, it.max_model_len) for it in models.list() for name in models.names(it)]
        data += [card(name, name, None, None) for name in models.awaited()]
        for adapter in models.adapters():
            base = models.find(adapter.model)
            data.append(card(adapter.lora.name, adapter.lora.path, adapter.model, base.max_model_len))
        return JSONResponse({"object": "list", "data": data})

    return router


def _card(created: int, name: str, root: str, parent: str | None, max_model_len: int | None) -> dict[str, Any]:
    shown = {"id": name, "object": "model", "created": created, "owned_by": "tokenwire"}
    return {**shown, "root": root, "parent": parent, "max_model_len": max_model_len}
