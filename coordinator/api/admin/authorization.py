"""Who may steer: who reaches the routes, but no page of another site; where there is an admin key, who brings it."""

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from tokenwire.coordinator.api.body import api_router
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.cross_site import is_cross_site
from tokenwire.errors import Forbidden, Unauthorized


class AdminAuthorization:
    """Asks for `Authorization: Bearer KEY`. A FastAPI dependency."""

    def __init__(self, key: AdminKey | None) -> None:
        self._key = key

    async def __call__(self, request: Request) -> None:
        """Let a request pass. Raises Forbidden or Unauthorized."""
        if is_cross_site(request.headers):
            raise Forbidden("This route takes no requests from other sites' pages.")
        if self._key is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._key.matches(key.strip()):
            raise Unauthorized("This route needs the admin key: Authorization: Bearer KEY")

    def guards(self, route: APIRoute) -> bool:
        """Tell whether a route asks."""
        return any(asked.dependency is self for asked in route.dependencies)

    @property
    def has_key(self) -> bool:
        """Whether there is an admin key."""
        return self._key is not None

    async def require_key(self) -> None:
        """Keep a route closed where there is no admin key, which the router's own check then asks for.

        Raises Forbidden. A FastAPI dependency.
        """
        if not self.has_key:
            raise Forbidden(
                "This route can call anything in the engine's processes, so it is closed without an admin key: start "
                "the server with --admin-key-file, or set TOKENWIRE_ADMIN_KEY."
            )

    def router(self) -> APIRouter:
        """Return a router whose routes all ask."""
        return api_router(dependencies=[Depends(self)])
