"""Posts requests to services."""

from typing import Any

import httpx

from tests.processes import Service


def post(service: Service, path: str, body: dict[str, Any], **headers: str) -> Any:
    """Post a request that must succeed; return its response."""
    response = httpx.post(service.url + path, json=body, headers=headers, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()
