"""Routes that update weights: vLLM's transfer, prime-rl's directories, and the weight version."""

import os
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus, common_version
from tokenwire.errors import InvalidRequest


class InitTransfer(Form):
    """vLLM's arguments for a transfer engine."""

    init_info: dict[str, Any]


class FinishUpdate(Form):
    """The version of the new weights."""

    weight_version: str | None = None


class SetVersion(Form):
    """A weight version."""

    new_version: str


class UpdateWeights(Form):
    """vLLM's `update_info` or prime-rl's `weight_dir`, whichever is present."""

    update_info: dict[str, Any] | list[Any] | None = None
    weight_dir: str | None = None
    weight_version: str | None = None


def weight_routes(admin: FleetAdmin, status: FleetStatus, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes."""
    router = authorization.router()
    _add_stages(router, admin)

    @router.post("/update_weights")
    async def update_weights(request: Request) -> Response:
        form = await read(UpdateWeights, request)
        if form.update_info is not None:
            await admin.transfer(form.model, "update", {"update_info": form.update_info})
            return JSONResponse({"message": "Weights updated"})
        if "weight_dir" not in form.model_fields_set:
            raise InvalidRequest("Either `update_info` or `weight_dir` must be provided.", param="weight_dir")
        if form.weight_dir:
            version = form.weight_version or version_of(form.weight_dir)
            await admin.load_weights(form.model, form.weight_dir, version, reset_prefix_cache=False)
        return JSONResponse({"status": "ok"})

    @router.post("/reload_weights")
    async def reload_weights(request: Request) -> Response:
        await admin.load_weights((await read(Form, request)).model, "", "", reset_prefix_cache=False)
        return JSONResponse({"status": "ok"})

    @router.post("/update_weight_version")
    async def update_weight_version(request: Request) -> Response:
        form = await read(SetVersion, request)
        await admin.set_weight_version(form.model, form.new_version)
        return JSONResponse({"success": True, "new_version": form.new_version})

    @router.get("/weight_info")
    async def weight_info(request: Request) -> Response:
        workers = status.connected((await read(Form, request)).model)
        version = common_version(workers)
        info: dict[str, Any] = {"weight_version": version}
        if version is None:
            info["workers"] = {worker.address: worker.serving.weight_version for worker in workers}
        return JSONResponse(info)

    return router


def version_of(weight_dir: str) -> str:
    """Return the default version of weights: the name of their directory."""
    return os.path.basename(os.path.normpath(weight_dir))


def _add_stages(router: ApiRouter, admin: FleetAdmin) -> None:
    @router.post("/init_weight_transfer_engine")
    async def init_transfer(request: Request) -> Response:
        form = await read(InitTransfer, request)
        return await _stage(form, "init", {"init_info": form.init_info}, "Weight transfer initialized")

    @router.post("/shutdown_weight_transfer_engine")
    async def shutdown_transfer(request: Request) -> Response:
        return await _stage(await read(Form, request), "shutdown", {}, "Weight transfer shut down")

    @router.post("/start_weight_update")
    async def start_update(request: Request) -> Response:
        return await _stage(await read(Form, request), "start", {}, "Weight update started")

    @router.post("/start_draft_weight_update")
    async def start_draft_update(request: Request) -> Response:
        return await _stage(await read(Form, request), "start_draft", {}, "Draft weight update started")

    @router.post("/finish_weight_update")
    async def finish_update(request: Request) -> Response:
        form = await read(FinishUpdate, request)
        arguments = {} if form.weight_version is None else {"weight_version": form.weight_version}
        return await _stage(form, "finish", arguments, "Weight update finished")

    async def _stage(form: Form, stage: str, arguments: Mapping[str, Any], message: str) -> Response:
        await admin.transfer(form.model, stage, arguments)
        return JSONResponse({"message": message})
