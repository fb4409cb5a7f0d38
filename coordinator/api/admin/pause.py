"""vLLM's routes /pause, /resume, /sleep and /wake_up, and those that return these states."""

from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus

Mode = Literal["abort", "wait", "keep"]


class Pause(Form):
    """How to pause."""

    mode: Mode = "abort"
    clear_cache: bool = True


class Sleep(Form):
    """The sleep level."""

    level: int = Field(default=1, ge=0, le=2)
    mode: Mode = "abort"


class WakeUp(Form):
    """What to wake; None: everything."""

    tags: list[str] | None = None


def pause_routes(admin: FleetAdmin, status: FleetStatus, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes."""
    router = authorization.router()
    _add_sleep(router, admin, status)

    @router.post("/pause")
    async def pause(request: Request) -> Response:
        form = await read(Pause, request)
        await admin.pause(form.model, form.mode, form.clear_cache)
        return JSONResponse({"status": "paused"})

    @router.post("/resume")
    async def resume(request: Request) -> Response:
        await admin.resume((await read(Form, request)).model)
        return JSONResponse({"status": "resumed"})

    @router.get("/is_paused")
    async def is_paused(request: Request) -> Response:
        workers = status.connected((await read(Form, request)).model)
        return JSONResponse(_all("is_paused", {worker.address: worker.serving.paused for worker in workers}))

    return router


def _add_sleep(router: ApiRouter, admin: FleetAdmin, status: FleetStatus) -> None:
    @router.post("/sleep")
    async def sleep(request: Request) -> Response:
        form = await read(Sleep, request)
        await admin.sleep(form.model, form.level, form.mode)
        return JSONResponse({"status": "sleeping", "level": form.level})

    @router.post("/wake_up")
    async def wake_up(request: Request) -> Response:
        form = await read(WakeUp, request)
        results = await admin.wake_up(form.model, form.tags or [])
        asleep = any(result.response.serving.sleeping for result in results)
        return JSONResponse({"status": "sleeping" if asleep else "awake", "tags": form.tags or None})

    @router.get("/is_sleeping")
    async def is_sleeping(request: Request) -> Response:
        workers = status.connected((await read(Form, request)).model)
        # As in vLLM, a paused engine counts as asleep.
        asleep = {worker.address: worker.serving.sleeping or worker.serving.paused for worker in workers}
        return JSONResponse(_all("is_sleeping", asleep))


def _all(name: str, by_worker: dict[str, bool]) -> dict[str, Any]:
    """Return one value for all workers; per worker where they differ."""
    values = set(by_worker.values())
    return {name: all(values)} if len(values) == 1 else {name: False, "workers": by_worker}
