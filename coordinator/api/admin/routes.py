"""The admin routes enabled by the settings."""

from fastapi import APIRouter

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import engine_routes
from tokenwire.coordinator.api.admin.lora import lora_routes
from tokenwire.coordinator.api.admin.pause import pause_routes
from tokenwire.coordinator.api.admin.rl import rl_routes
from tokenwire.coordinator.api.admin.rl_workers import discovery_routes
from tokenwire.coordinator.api.admin.trl import trl_weight_routes
from tokenwire.coordinator.api.admin.weights import weight_routes
from tokenwire.coordinator.api.body import api_router
from tokenwire.coordinator.auth.settings import ControlSettings
from tokenwire.coordinator.fleet.operations import FleetControl
from tokenwire.coordinator.fleet.status import FleetStatus


def control_routes(
    control: FleetControl, status: FleetStatus, settings: ControlSettings, authorization: AdminAuthorization
) -> APIRouter:
    """Return a router with the enabled routes; none by default."""
    router = api_router()
    if settings.lora_routes or settings.rl_routes:
        router.include_router(lora_routes(control, authorization))
    if settings.rl_routes:
        router.include_router(pause_routes(control, status, authorization))
        router.include_router(weight_routes(control, status, authorization))
        router.include_router(engine_routes(control, authorization))
        router.include_router(rl_routes(control, status, authorization))
        router.include_router(trl_weight_routes(control, authorization))
        router.include_router(discovery_routes(control, status, authorization))
    return router
