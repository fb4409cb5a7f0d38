"""vLLM's routes for engines: world size, configuration, caches, collective RPC, liveness."""

from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire import __version__
from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.admin.weights import version_of
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.errors import FleetFailed, Unavailable


class WorldSize(Form):
    """Whether data-parallel replicas count."""

    include_dp: bool = True


class ResetCache(Form):
    """What to reset in addition."""

    reset_running_requests: bool = False
    reset_external: bool = False


class ServerInfo(Form):
    """vLLM's formats; always JSON here."""

    config_format: Literal["text", "json"] = "text"


class RemoteProcedure(Form):
    """A method of vLLM's worker class, or of an extension of it."""

    method: str
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    timeout: float | None = None


def engine_routes(admin: FleetAdmin, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes; TRL up to 1.10 uses two of them with a trailing slash."""
    router = authorization.router()

    @router.get("/get_world_size")
    @router.get("/get_world_size/")
    async def get_world_size(request: Request) -> Response:
        form = await read(WorldSize, request)
        return JSONResponse({"world_size": await world_size(admin, form.model, form.include_dp)})

    @router.get("/server_info")
    async def server_info(request: Request) -> Response:
        configurations = await admin.configurations((await read(ServerInfo, request)).model)
        info = {"vllm_config": configurations[0], "vllm_env": {}, "system_env": {}, "tokenwire": __version__}
        return JSONResponse({**info, "workers": len(configurations)})

    @router.post("/reset_prefix_cache")
    @router.post("/reset_prefix_cache/")
    async def reset_prefix_cache(request: Request) -> Response:
        form = await read(ResetCache, request)
        results = await admin.reset_cache(form.model, form.reset_running_requests, form.reset_external)
        return JSONResponse({"success": all(result.response.success for result in results)})

    @router.post("/collective_rpc", guards=[authorization.require_key])
    async def collective_rpc(request: Request) -> Response:
        form = await read(RemoteProcedure, request)
        weight_dir = _weight_dir(form)
        if weight_dir is not None:
            results = await admin.load_weights(form.model, weight_dir, version_of(weight_dir), False)
            return JSONResponse({"results": [None] * len(results)})
        values = await admin.collective_rpc(form.model, form.method, form.args, form.kwargs, form.timeout)
        shown = [value if value is None or isinstance(value, dict | list) else str(value) for value in values]
        return JSONResponse({"results": shown})

    @router.get("/liveness")
    async def liveness(request: Request) -> Response:
        return await probe(admin, (await read(Form, request)).model)

    return router


async def world_size(admin: FleetAdmin, model: str | None, include_dp: bool = True) -> int:
    """Return the number of processes of all engines of a model. Raises FleetFailed if an engine does not respond."""
    name = "world_size_across_dp" if include_dp else "world_size"
    return sum(configuration["parallel_config"][name] for configuration in await admin.configurations(model))


async def probe(admin: FleetAdmin, model: str | None) -> Response:
    """Return the response that prime-rl's liveness probe expects."""
    try:
        await admin.probe(model)
    except (FleetFailed, Unavailable) as error:
        workers = error.workers if isinstance(error, FleetFailed) else []
        return JSONResponse({"status": "engine_unresponsive", "message": error.message, "workers": workers}, 503)
    return JSONResponse({"status": "ok"})


def _weight_dir(form: RemoteProcedure) -> str | None:
    """Return the directory of a call that loads weights, so that workers that join later can load them too."""
    if form.method == "reload_weights" and form.kwargs.keys() == {"weights_path"} and not form.args:
        directory = form.kwargs["weights_path"]
    elif form.method == "update_weights_from_path" and len(form.args) == 1 and not form.kwargs:
        directory = form.args[0]
    else:
        return None
    return directory if isinstance(directory, str) and directory else None
