"""The status of a worker as JSON."""

from typing import Any

from tokenwire.coordinator.fleet.status import WorkerStatus


def worker_object(status: WorkerStatus) -> dict[str, Any]:
    """Return the status; what a worker announced only while it is connected."""
    connected, serving = status.connected, status.serving
    return {
        "worker": status.address,
        "session": status.session,
        "pause_state": status.pause_state,
        "weight_version": serving.weight_version if connected else None,
        "weights_path": serving.weights_path or None if connected else None,
        "weights_origin": status.weights_origin if connected else None,
        "revision": status.revision.digest if connected else None,
        "loras": [adapter.name for adapter in serving.adapters] if connected else [],
        "epoch": serving.epoch if connected else None,
        "routable": not status.reason,
        "reason": status.reason or None,
        "reconcile_error": status.reconcile_error or None,
    }
