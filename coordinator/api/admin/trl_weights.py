"""Weight updates of TRL up to 1.10: a communicator, then one broadcast for each parameter. GPUs only."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import world_size
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.errors import Unsupported


class InitCommunicator(Form):
    """The trainer's address. The world size is computed here: all engine processes, and the trainer."""

    host: str
    port: int


class NamedParameter(Form):
    """The parameter that the trainer broadcasts next."""

    name: str
    dtype: str
    shape: list[int]


class Broadcasts:
    """Calls that run in the background, because the client takes part in them only after it has the response.

    One at a time, in order. An error is raised by the next call.
    """

    def __init__(self) -> None:
        self._last: asyncio.Task[object] | None = None

    def begin(self, call: Callable[[], Awaitable[object]]) -> None:
        """Start a call after the running ones. Raises the error of a finished one."""
        previous = self._last
        if previous is not None and previous.done():
            self._last = None
            previous.result()
        self._last = asyncio.create_task(_after(previous, call))


async def _after(previous: "asyncio.Task[object] | None", call: Callable[[], Awaitable[object]]) -> object:
    if previous is not None:
        await previous
    return await call()


def trl_weight_routes(admin: FleetAdmin, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes."""
    router = authorization.router()
    broadcasts = Broadcasts()

    @router.post("/init_communicator/")
    async def init_communicator(request: Request) -> Response:
        form = await read(InitCommunicator, request)
        await _require_gpus(admin, form.model)
        world = await world_size(admin, form.model) + 1
        communicator = {"host": form.host, "port": form.port, "world_size": world}
        init = {"init_info": {"communicator": communicator, "rank_offset": 0}}
        broadcasts.begin(lambda: admin.transfer(form.model, "init", init))
        return JSONResponse({"message": "Request received, initializing communicator"})

    @router.post("/update_named_param/")
    async def update_named_param(request: Request) -> Response:
        form = await read(NamedParameter, request)
        await _require_gpus(admin, form.model)
        named: dict[str, Any] = {"name": form.name, "dtype": form.dtype, "shape": form.shape}
        broadcasts.begin(lambda: admin.transfer(form.model, "update", {"update_info": {"named_param": named}}))
        return JSONResponse({"message": "Request received, updating named parameter"})

    @router.post("/close_communicator/")
    async def close_communicator(request: Request) -> Response:
        form = await read(Form, request)
        if await _device_without_nccl(admin, form.model) is None:  # otherwise none was ever opened
            broadcasts.begin(lambda: admin.transfer(form.model, "shutdown", {"communicator": True}))
        return JSONResponse({"message": "Request received, closing communicator"})

    return router


async def _device_without_nccl(admin: FleetAdmin, model: str | None) -> str | None:
    """Return the device of a worker without NCCL; None if all have it."""
    devices = [configuration["device_config"]["device_type"] for configuration in await admin.configurations(model)]
    return next((device for device in devices if device != "cuda"), None)


async def _require_gpus(admin: FleetAdmin, model: str | None) -> None:
    device = await _device_without_nccl(admin, model)
    if device is not None:
        raise Unsupported(
            f"A communicator needs GPUs (NCCL); a worker of this model runs on {device}. Its weights can be "
            'updated from a directory: POST /update_weights {"weight_dir": ...}.'
        )
