"""GET /health, /version, /v1/models."""

import time

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from coordinator.fleet.pool import WorkerPool
from coordinator.models import ModelDirectory
from tokenwire import __version__
from tokenwire.errors import Unavailable


def service_routes(pool: WorkerPool, models: ModelDirectory) -> APIRouter:
    """Return routes that tell about the service itself."""
    router = APIRouter()
    started = int(time.time())

    @router.get("/health")
    async def health() -> Response:
        if not pool.is_ready():
            reasons = "; ".join(f"{session.address}: {session.last_error}" for session in pool.sessions)
            raise Unavailable(f"No worker is ready: {reasons}", retry_after_s=2)
        return Response()

    @router.get("/version")
    async def version() -> Response:
        return JSONResponse({"version": __version__})

    @router.get("/v1/models")
    async def list_models() -> Response:
        data = [
            {
                "id": name,
                "object": "model",
                "created": started,
                "owned_by": "tokenwire",
                "root": model.root,
                "parent": None,
                "max_model_len": model.max_model_len,
            }
            for model in models.list()
            for name in model.names
        ]
        return JSONResponse({"object": "list", "data": data})

    return router
