"""All control routes that the settings ask for."""

from fastapi import APIRouter

from coordinator.api.body import api_router
from coordinator.api.control.discovery import discovery_routes
from coordinator.api.control.engines import engine_routes
from coordinator.api.control.gate import AdminGate
from coordinator.api.control.lora import lora_routes
from coordinator.api.control.pauses import pause_routes
from coordinator.api.control.rl import rl_routes
from coordinator.api.control.trl import trl_weight_routes
from coordinator.api.control.weights import weight_routes
from coordinator.fleet.control import FleetControl
from coordinator.fleet.status import FleetStatus
from coordinator.settings import ControlSettings


def control_routes(control: FleetControl, status: FleetStatus, settings: ControlSettings, gate: AdminGate) -> APIRouter:
    """Return a router with the routes that are on; none by default."""
    router = api_router()
    if settings.lora_routes or settings.rl_routes:
        router.include_router(lora_routes(control, gate))
    if settings.rl_routes:
        router.include_router(pause_routes(control, status, gate))
        router.include_router(weight_routes(control, status, gate))
        router.include_router(engine_routes(control, gate))
        router.include_router(rl_routes(control, status, gate))
        router.include_router(trl_weight_routes(control, gate))
        router.include_router(discovery_routes(control, status, gate))
    return router
