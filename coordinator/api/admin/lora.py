"""Routes that load and unload LoRA adapters: vLLM's, and prime-rl's, which replaces."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.form import Form, read
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.errors import InvalidRequest


class LoadAdapter(Form):
    """An adapter."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    is_3d_lora_weight: bool = False


class UnloadAdapter(Form):
    """An adapter's name."""

    lora_name: str


def lora_routes(admin: FleetAdmin, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes."""
    router = authorization.router()

    @router.post("/v1/load_lora_adapter")
    async def load(request: Request) -> Response:
        form = await read(LoadAdapter, request)
        await load_adapter(admin, form, replace=form.load_inplace)
        return PlainTextResponse(f"Success: LoRA adapter '{form.lora_name}' added successfully.")

    @router.post("/load_lora_adapter")
    async def load_or_replace(request: Request) -> Response:
        await load_adapter(admin, await read(LoadAdapter, request), replace=True)
        return JSONResponse({"status": "ok"})

    @router.post("/v1/unload_lora_adapter")
    async def unload(request: Request) -> Response:
        form = await read(UnloadAdapter, request)
        if not form.lora_name:
            raise InvalidRequest("'lora_name' needs to be provided to unload a LoRA adapter.", param="lora_name")
        await admin.unload_lora(form.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{form.lora_name}' removed successfully.")

    return router


async def load_adapter(admin: FleetAdmin, form: LoadAdapter, replace: bool) -> None:
    """Load an adapter on all workers. Raises what FleetAdmin raises."""
    if not form.lora_name or not form.lora_path:
        raise InvalidRequest("Both 'lora_name' and 'lora_path' must be provided.", param="lora_name")
    await admin.load_lora(form.model, form.lora_name, form.lora_path, replace, form.is_3d_lora_weight)
