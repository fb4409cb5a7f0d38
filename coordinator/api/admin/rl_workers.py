"""GET /v1/rl/workers: the admin endpoint of each model, for clients of Dynamo's discovery."""

import hashlib
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import world_size
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.errors import TokenwireError

_ROUTES = ("/pause", "/resume", "/update_weights", "/load_lora_adapter")


def discovery_routes(admin: FleetAdmin, status: FleetStatus, authorization: AdminAuthorization) -> ApiRouter:
    """Return the route. Each model's fleet is one entry, since one call here reaches all of its workers."""
    router = authorization.router()
    routes = [*_ROUTES, *(["/collective_rpc"] if authorization.has_key else [])]

    @router.get("/v1/rl/workers")
    async def workers(request: Request) -> Response:
        base = f"{request.url.scheme}://{request.url.netloc}"
        entries = [await _entry(admin, status, model, base, routes) for model in status.models()]
        return JSONResponse({"protocol_version": 1, "namespace": "tokenwire", "workers": entries})

    return router


async def _entry(
    admin: FleetAdmin, status: FleetStatus, model: str, base: str, routes: Sequence[str]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "namespace": "tokenwire",
        "component": "coordinator",
        "endpoint": "control",
        "instance_id": int.from_bytes(hashlib.sha256(model.encode()).digest()[:6], "big"),
        "transport": "http",
        "request_plane_url": base,
        "system_url": base,
        "admin_base_url": base,
        "world_size": 1,
        "model": model,
        "routes": routes,
    }
    try:
        entry["world_size"] = await world_size(admin, model)
        out = [f"{worker.address}: {worker.reason}" for worker in status.workers(model) if worker.reason]
        return {**entry, "error": "; ".join(out)} if out else entry
    except TokenwireError as error:
        return {**entry, "error": error.message}
