"""Authenticates requests by their API key, before their body is read."""

from collections.abc import Callable, Container, Sequence

from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from tokenwire.coordinator.auth.api_keys import ApiKey, ApiKeys
from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.errors import Unauthorized

FREE_PATHS = frozenset({"/health", "/health/", "/version", "/metrics"})
"""Paths for probes and scrapers, without a key."""


class Authenticator:
    """Requires `Authorization: Bearer KEY` or `x-api-key: KEY`, and has an account for each key."""

    def __init__(
        self,
        keys: Callable[[], ApiKeys],
        free_paths: Container[str] = FREE_PATHS,
        guarded: Sequence[BaseRoute] = (),
    ) -> None:
        """`guarded` are routes with their own key."""
        self._keys = keys
        self._free_paths = free_paths
        self._guarded = guarded
        self._accounts: dict[bytes, Account] = {}

    def authenticate(self, scope: Scope) -> tuple[Caller, Account | None]:
        """Return the caller, and the account whose limits apply to the request. Raises Unauthorized."""
        if scope["path"] in self._free_paths:
            return ANYBODY, None
        key = self._find(Headers(scope=scope))
        if key is not None:
            account = self._account(key)
            caller = Caller(key.tenant, key.min_priority, key.models, account.charge)
            return caller, account if scope["method"] == "POST" else None
        if any(route.matches(scope)[0] is Match.FULL for route in self._guarded):
            return ANYBODY, None
        raise Unauthorized("Missing or invalid API key: Authorization: Bearer KEY")

    def _find(self, headers: Headers) -> ApiKey | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        keys = self._keys()
        found = keys.find(bearer.strip().encode("latin-1")) if scheme.lower() == "bearer" else None
        return found or keys.find(headers.get("x-api-key", "").strip().encode("latin-1"))

    def _account(self, key: ApiKey) -> Account:
        account = self._accounts.get(key.digest)
        if account is None or account.limits != key.limits:
            account = self._accounts[key.digest] = Account(key.tenant, key.limits)
        return account
