"""rLLM's calls about workers: they are listed, but neither registered nor removed; a coordinator finds its own."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.errors import InvalidRequest

_WORKERS = "/admin/workers"


def gateway_worker_routes(pool: WorkerPool, fleet: FleetStatus) -> ApiRouter:
    """Return the routes of workers."""
    router = ApiRouter()

    def shown(session: WorkerSession) -> dict[str, Any]:
        status = fleet.of(session)
        return {
            "worker_id": status.address,
            "url": status.address,
            "api_path": "",
            "model_name": session.model_name or None,
            "weight": 1,
            "healthy": not status.reason,
            "active_requests": session.open_slots,
        }

    @router.get(_WORKERS)
    async def list_workers(request: Request) -> Response:
        return JSONResponse([shown(session) for session in pool.sessions])

    @router.post(_WORKERS)
    @router.delete(f"{_WORKERS}/{{worker_id:path}}")  # an address, which may have slashes
    async def change_workers(request: Request) -> Response:
        raise InvalidRequest(
            "Workers are neither registered nor removed by requests here: a coordinator finds them by its option "
            "--worker, which takes addresses, and names, files and services that are watched."
        )

    return router
