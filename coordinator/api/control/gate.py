"""Who may steer: everybody who reaches the routes, or, where there is an admin key, who brings it."""

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from coordinator.access.admin_key import AdminKey
from tokenwire.errors import Unauthorized


class AdminGate:
    """Asks for `Authorization: Bearer KEY`. A FastAPI dependency."""

    def __init__(self, key: AdminKey | None) -> None:
        self._key = key

    async def __call__(self, request: Request) -> None:
        """Let a request pass. Raises Unauthorized."""
        if self._key is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._key.matches(key.strip()):
            raise Unauthorized("This route needs the admin key: Authorization: Bearer KEY")

    def guards(self, route: APIRoute) -> bool:
        """Tell whether a route asks."""
        return any(asked.dependency is self for asked in route.dependencies)

    def router(self) -> APIRouter:
        """Return a router whose routes all ask."""
        return APIRouter(dependencies=[Depends(self)])
