"""The admin routes enabled by the settings."""

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.admin.engines import engine_routes
from tokenwire.coordinator.api.admin.lora import lora_routes
from tokenwire.coordinator.api.admin.pause import pause_routes
from tokenwire.coordinator.api.admin.rl import rl_routes
from tokenwire.coordinator.api.admin.rl_workers import discovery_routes
from tokenwire.coordinator.api.admin.trl_weights import trl_weight_routes
from tokenwire.coordinator.api.admin.weights import weight_routes
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.admin import FleetAdmin
from tokenwire.coordinator.fleet.status import FleetStatus


def admin_routes(
    admin: FleetAdmin, status: FleetStatus, settings: AdminSettings, authorization: AdminAuthorization
) -> ApiRouter:
    """Return a router with the enabled routes; none by default."""
    router = ApiRouter()
    if settings.lora_routes or settings.rl_routes:
        router.include(lora_routes(admin, authorization))
    if settings.rl_routes:
        router.include(pause_routes(admin, status, authorization))
        router.include(weight_routes(admin, status, authorization))
        router.include(engine_routes(admin, authorization))
        router.include(rl_routes(admin, status, authorization))
        router.include(trl_weight_routes(admin, authorization))
        router.include(discovery_routes(admin, status, authorization))
    return router
