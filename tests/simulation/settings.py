"""Settings of simulated coordinators, by the configuration of a script."""

from typing import Any

from tests.simulation.tenants import api_keys
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.api_keys import AuthSettings
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.settings import CoordinatorSettings, ObservabilitySettings
from tokenwire.peer_auth.operation_keys import OperationKeys

ADMIN_KEY = "admin"
_KEYS = OperationKeys("a key that all of the coordinators have")


def coordinator_settings(config: dict[str, Any]) -> CoordinatorSettings:
    """Return the settings of all coordinators of a fleet."""
    return CoordinatorSettings(
        workers=("10.0.0.1:50051",),
        status_page=False,
        auth=AuthSettings(keys=api_keys(config["keys"])),
        admin=AdminSettings(
            rl_routes=True,
            lora_routes=True,
            admin_key=AdminKey(ADMIN_KEY),
            timeout_s=20.0,
            operations_keys=_KEYS if config.get("signed") else None,
        ),
        failover=FailoverSettings(config["attempts"], config.get("resume", "auto"), config.get("preempt_after_s", 0.0)),
        history=HistorySettings(ttl_s=config.get("history_ttl_s", 3600.0)),
        admission=AdmissionSettings(
            queue_timeout_s=config["queue_timeout_s"],
            max_queue=config["max_queue"],
            request_timeout_s=config["request_timeout_s"],
        ),
        observability=ObservabilitySettings(request_log=False),
    )
