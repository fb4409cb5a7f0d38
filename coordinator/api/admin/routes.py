"""The admin routes enabled by the settings."""

from fastapi import APIRouter

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import engine_routes
from tokenwire.coordinator.api.admin.lora import lora_routes
from tokenwire.coordinator.api.admin.pause import pause_routes
from tokenwire.coordinator.api.admin.rl import rl_routes
from tokenwire.coordinator.api.admin.rl_workers import discovery_routes
from tokenwire.coordinator.api.admin.trl_weights import trl_weight_routes
from tokenwire.coordinator.api.admin.weights import weight_routes
from tokenwire.coordinator.api.api_request import api_router
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus


def admin_routes(
    admin: FleetAdmin, status: FleetStatus, settings: AdminSettings, authorization: AdminAuthorization
) -> APIRouter:
    """Return a router with the enabled routes; none by default."""
    router = api_router()
    if settings.lora_routes or settings.rl_routes:
        router.include_router(lora_routes(admin, authorization))
    if settings.rl_routes:
        router.include_router(pause_routes(admin, status, authorization))
        router.include_router(weight_routes(admin, status, authorization))
        router.include_router(engine_routes(admin, authorization))
        router.include_router(rl_routes(admin, status, authorization))
        router.include_router(trl_weight_routes(admin, authorization))
        router.include_router(discovery_routes(admin, status, authorization))
    return router
