"""A worker and a coordinator as two processes: models, chats of every kind, health and metrics."""

from typing import Any

import httpx

from gpu.kit import Kit

NAME = "job"
LIMIT_S = 180


def run(kit: Kit) -> dict[str, Any]:
    """Ask for one reply."""
    with kit.tokenwire_worker() as worker, kit.coordinator([worker]) as coordinator:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}
        response = httpx.post(f"{coordinator.address}/v1/chat/completions", json=body, timeout=60)
        response.raise_for_status()
        return {"worker_ready_s": worker.ready_s, "coordinator_ready_s": coordinator.ready_s, "reply": response.json()}
