"""ASGI middleware that asks for an API key before anything else is read of a request."""

from collections.abc import Callable, Container, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.api.errors import error_response
from tokenwire.coordinator.auth.api_keys import ApiKeys, Key
from tokenwire.coordinator.auth.caller import Caller, note_caller
from tokenwire.coordinator.auth.rate_limit import Account
from tokenwire.errors import Overloaded, TokenwireError, Unauthorized

FREE_PATHS = frozenset({"/health", "/health/", "/version", "/metrics"})
"""What probes and scrapers ask for."""
_SMALL_BODY_BYTES = 64 * 1024


class AuthMiddleware:
    """Lets requests with a key pass, as long as the key's limits allow, and notes whose they are."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Callable[[], ApiKeys],
        free_paths: Container[str] = FREE_PATHS,
        guarded: Sequence[BaseRoute] = (),
    ) -> None:
        """`guarded` are routes that ask for a key of their own."""
        self._app = app
        self._keys = keys
        self._free_paths = free_paths
        self._guarded = guarded
        self._accounts: dict[bytes, Account] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._free_paths:
            await self._app(scope, receive, send)
            return
        key = self._find(Headers(scope=scope))
        if key is not None:
            await self._pass(key, scope, receive, send)
        elif any(route.matches(scope)[0] is Match.FULL for route in self._guarded):
            await self._app(scope, receive, send)
        else:
            error = Unauthorized("This server needs an API key that it knows: Authorization: Bearer KEY")
            await _refuse(error, {}, scope, receive, send)

    def _find(self, headers: Headers) -> Key | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        keys = self._keys()
        found = keys.find(bearer.strip().encode("latin-1")) if scheme.lower() == "bearer" else None
        return found or keys.find(headers.get("x-api-key", "").strip().encode("latin-1"))

    async def _pass(self, key: Key, scope: Scope, receive: Receive, send: Send) -> None:
        account = self._account(key)
        note_caller(scope, Caller(key.tenant, key.min_priority, key.models, account.charge))
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            account.enter()
        except Overloaded as error:
            await _refuse(error, account.headers(), scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(account.headers())
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            account.leave()

    def _account(self, key: Key) -> Account:
        account = self._accounts.get(key.digest)
        if account is None or account.limits != key.limits:
            account = self._accounts[key.digest] = Account(key.tenant, key.limits)
        return account


async def _refuse(error: TokenwireError, headers: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(error, scope)
    response.headers.update(headers)
    length = Headers(scope=scope).get("content-length", "")
    if scope["method"] == "POST" and not (length.isdigit() and int(length) <= _SMALL_BODY_BYTES):
        # The body was not read, and to let it come only to throw it away is what the sender may want.
        response.headers["connection"] = "close"
    await response(scope, receive, send)
