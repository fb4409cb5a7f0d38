"""Which keys the routes require, as the OpenAPI document describes it."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.api.router import ApiRoute

BEARER, HEADER, ADMIN = "apiKey", "apiKeyHeader", "adminKey"
_SCHEMES = {
    BEARER: {"type": "http", "scheme": "bearer", "description": "An API key."},
    HEADER: {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same, as Anthropic sends it."},
    ADMIN: {"type": "http", "scheme": "bearer", "description": "The admin key, in place of an API key."},
}


@dataclass(frozen=True, slots=True)
class Security:
    """Which keys the routes require."""

    requires_key: bool
    """Whether there are API keys."""
    requires_admin_key: bool
    """Whether there is an admin key."""
    free_paths: Container[str]
    """Paths that need no API key."""
    is_guarded: Callable[[ApiRoute], bool]
    """Whether a route requires the admin key."""

    def schemes(self) -> dict[str, Any]:
        """Return the security schemes in use."""
        used = [BEARER, HEADER] * self.requires_key + [ADMIN] * self.requires_admin_key
        return {name: _SCHEMES[name] for name in used}

    def needed(self, route: ApiRoute) -> list[dict[str, list[str]]]:
        """Return the alternative schemes of a route; empty if it needs no key."""
        if self.is_guarded(route):
            return [{ADMIN: []}] if self.requires_admin_key else []
        return [{BEARER: []}, {HEADER: []}] if self.requires_key and route.path not in self.free_paths else []
