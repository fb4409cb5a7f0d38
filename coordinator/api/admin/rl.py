"""/v1/rl: the state of the fleet and operations on it, in Dynamo's format."""

from collections.abc import Awaitable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import probe
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.admin.lora import LoadAdapter, UnloadAdapter, load_adapter
from tokenwire.coordinator.api.admin.pause import Mode
from tokenwire.coordinator.api.admin.weights import version_of
from tokenwire.coordinator.api.admin.worker_status import worker_object
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus, WorkerStatus, common_version
from tokenwire.errors import FleetFailed, NotFound, Unavailable


class RlPause(Form):
    """How to pause; trainers keep running requests."""

    mode: Mode = "keep"
    clear_cache: bool = False


class RlUpdateWeights(Form):
    """Weights in a directory; none: they were transferred in another way, and nothing is done."""

    weight_dir: str | None = None
    weight_version: str | None = None
    reset_prefix_cache: bool = True


class _Responses:
    """Builds the responses of operations: the state of every worker, or the failures."""

    def __init__(self, status: FleetStatus) -> None:
        self._status = status

    def state(self, model: str | None) -> Response:
        """Return the success response with the state of every worker."""
        workers = self._status.workers(model)
        version = common_version(workers)
        each = [worker_object(worker) for worker in workers]
        return JSONResponse({"status": "ok", "applied_weight_version": version, "workers": each})

    async def after(self, form: Form, operation: Awaitable[object]) -> Response:
        """Run an operation and return its response."""
        try:
            await operation
        except FleetFailed as error:
            each = {"stage": error.stage, "message": error.message, "workers": error.workers}
            return JSONResponse({"status": "error", **each}, 502)
        return self.state(form.model)


def rl_routes(admin: FleetAdmin, status: FleetStatus, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes."""
    router = authorization.router()
    responses = _Responses(status)
    _add_state(router, admin, status)
    _add_adapters(router, admin, responses)

    @router.post("/v1/rl/pause")
    async def pause(request: Request) -> Response:
        form = await read(RlPause, request)
        return await responses.after(form, admin.pause(form.model, form.mode, form.clear_cache))

    @router.post("/v1/rl/resume")
    async def resume(request: Request) -> Response:
        form = await read(Form, request)
        return await responses.after(form, admin.resume(form.model))

    @router.post("/v1/rl/update_weights")
    async def update_weights(request: Request) -> Response:
        form = await read(RlUpdateWeights, request)
        path = form.weight_dir
        if not path:
            return responses.state(form.model)
        version = form.weight_version or version_of(path)
        loading = admin.load_weights(form.model, path, version, form.reset_prefix_cache)
        return await responses.after(form, loading)

    return router


def _add_adapters(router: ApiRouter, admin: FleetAdmin, responses: _Responses) -> None:
    @router.post("/v1/rl/load_lora_adapter")
    async def load_lora(request: Request) -> Response:
        form = await read(LoadAdapter, request)
        return await responses.after(form, load_adapter(admin, form, replace=True))

    @router.post("/v1/rl/unload_lora_adapter")
    async def unload_lora(request: Request) -> Response:
        form = await read(UnloadAdapter, request)
        try:
            return await responses.after(form, admin.unload_lora(form.lora_name))
        except NotFound:
            return responses.state(form.model)  # already unloaded


def _add_state(router: ApiRouter, admin: FleetAdmin, status: FleetStatus) -> None:
    @router.get("/v1/rl/state")
    async def state(request: Request) -> Response:
        try:
            workers = status.workers((await read(Form, request)).model)
        except Unavailable as error:
            return JSONResponse({**_state([]), "message": error.message}, 503)
        return JSONResponse(_state(workers))

    @router.get("/v1/rl/health")
    async def health(request: Request) -> Response:
        status.connected((await read(Form, request)).model)
        return JSONResponse({"status": "ok"})

    @router.get("/v1/rl/ready")
    async def ready(request: Request) -> Response:
        workers = status.workers((await read(Form, request)).model)
        is_ready = _is_ready(workers)
        return JSONResponse(
            {"ready": is_ready, "workers": [worker_object(each) for each in workers]}, 200 if is_ready else 503
        )

    @router.get("/v1/rl/liveness")
    async def liveness(request: Request) -> Response:
        return await probe(admin, (await read(Form, request)).model)

    @router.get("/v1/rl/weight_version")
    async def weight_version(request: Request) -> Response:
        workers = status.connected((await read(Form, request)).model)
        each = {worker.address: worker.serving.weight_version for worker in workers}
        return JSONResponse({"weight_version": common_version(workers), "workers": each})


def _state(workers: Sequence[WorkerStatus]) -> dict[str, Any]:
    connected = [worker for worker in workers if worker.connected]
    pauses = {worker.pause_state for worker in connected}
    loras: dict[str, list[str]] = {}
    for worker in connected:
        for adapter in worker.serving.adapters:
            loras.setdefault(adapter.name, []).append(worker.address)
    return {
        "ready": _is_ready(workers),
        "ingress_alive": True,
        "engine_alive": bool(connected),
        "pause_state": pauses.pop() if len(pauses) == 1 else "mixed" if pauses else "unknown",
        "applied_weight_version": common_version(workers),
        "loras": [{"name": name, "loaded_on": addresses} for name, addresses in loras.items()],
        "workers": [worker_object(worker) for worker in workers],
    }


def _is_ready(workers: Sequence[WorkerStatus]) -> bool:
    """Return whether all workers are connected and in sync; a paused fleet is ready too."""
    return bool(workers) and not any(worker.reason for worker in workers)
