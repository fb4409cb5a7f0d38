"""Authorization of admin routes: no cross-site requests, and the admin key if there is one."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from tokenwire.coordinator.api.router import ApiRoute, ApiRouter
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.errors import Forbidden, Unauthorized

_OWN_SITES = ("same-origin", "none")
"""Sec-Fetch-Site for our own page, and for the user. same-site may be another service's page on another port."""


class AdminAuthorization:
    """Requires `Authorization: Bearer KEY`. A guard of routes."""

    def __init__(self, key: AdminKey | None) -> None:
        self._key = key

    async def __call__(self, request: Request) -> None:
        """Authorize a request. Raises Forbidden or Unauthorized."""
        if is_cross_site(request.headers):
            raise Forbidden("This route does not accept cross-site requests.")
        if self._key is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._key.matches(key.strip()):
            raise Unauthorized("This route needs the admin key: Authorization: Bearer KEY")

    def guards(self, route: ApiRoute) -> bool:
        """Return whether a route requires authorization."""
        return self in route.guards

    @property
    def has_key(self) -> bool:
        """Whether there is an admin key."""
        return self._key is not None

    async def require_key(self, request: Request) -> None:
        """Reject requests if there is no admin key; with one, the router's own check applies.

        Raises Forbidden. A guard of routes.
        """
        if not self.has_key:
            raise Forbidden(
                "This route can call anything in the engine's processes, so it is disabled without an admin key: start "
                "the server with --admin-key-file, or set TOKENWIRE_ADMIN_KEY."
            )

    def router(self) -> ApiRouter:
        """Return a router whose routes all require authorization."""
        return ApiRouter(guards=[self])


def is_cross_site(headers: Headers) -> bool:
    """Return whether another site's page sent a request. Clients other than browsers send neither header."""
    fetch_site = headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in _OWN_SITES
    origin = headers.get("origin")  # browsers from before 2023 send only this, and only for writes
    return origin is not None and urlsplit(origin).netloc != headers.get("host")
