"""The only ASGI middleware: request context and record, host and key, response headers, errors, the end of a drain.

One file, since each request passes all of it.
"""

import asyncio
import ipaddress
import json
import math
import time
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from dataclasses import replace

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.api.errors import CLIENT_CLOSED_REQUEST, error_response, response_to, response_to_unexpected
from tokenwire.coordinator.api.fields.finish import RESUMED_HEADER
from tokenwire.coordinator.auth.accounts import Accounts
from tokenwire.coordinator.auth.api_keys import ApiKey, ApiKeys
from tokenwire.coordinator.auth.caller import ANYBODY, Caller, caller_at
from tokenwire.coordinator.auth.rate_limit import UNLIMITED, Account
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.http.backpressure import SMALL_BYTES, BodyBudget, BodyMemory, BodySettings
from tokenwire.coordinator.http.connection import CONNECTION_EXTENSION, AsgiConnection
from tokenwire.coordinator.http.content_coding import decoder_of
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.record import (
    PrefixDivergence,
    RequestListener,
    RequestRecord,
    StartListener,
    trace_headers,
)
from tokenwire.errors import Forbidden, InvalidRequest, TokenwireError, TooLarge, Unauthorized
from tokenwire.process.for_each import call_each
from tokenwire.process.pace import Pace

WORKER_HEADER = "X-Tokenwire-Worker"
PREFIX_HEADER = "X-Tokenwire-Prefix"
_TIMEOUT_HEADER = b"x-request-timeout"
_CODING_HEADER = b"content-encoding"
_BEGIN_AT_ONCE = 8
"""Requests, some milliseconds of work, before what runs already has its turn."""
_LOCAL_DOMAINS = (".localhost", ".internal")
"""Domains that cannot be registered; containers use the second one for their host."""
_MOST_SEEN = 64
"""Accepted Host headers that are remembered; a head may have one of 64 KiB."""
FREE_PATHS = frozenset({"/health", "/health/", "/version", "/metrics"})
"""Paths for probes and scrapers, without a key."""


class AllowedHosts:
    """Rejects requests to other hosts, such as those of a page whose domain resolves to this machine (DNS rebinding).

    Addresses and host names that cannot be registered are accepted.
    """

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """`allowed` are additional names, in lower case."""
        self._allowed = frozenset({"", "localhost", *allowed})
        self._seen: set[bytes] = set()
        """Some headers that were accepted."""

    def check(self, scope: Scope) -> None:
        """Check every Host header of a request. Raises Forbidden."""
        for name, value in scope["headers"]:
            if name == b"host" and value not in self._seen:
                if not self._allows(_host_name(value)):
                    raise _foreign_host(_host_name(value))
                if len(self._seen) < _MOST_SEEN:
                    self._seen.add(value)

    def _allows(self, host: str) -> bool:
        return host in self._allowed or host.endswith(_LOCAL_DOMAINS) or _is_address(host)


def _host_name(header: bytes) -> str:
    """Return the host of a Host header, without its port."""
    host = header.decode("latin-1").strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True  # no DNS is involved


def _foreign_host(host: str) -> Forbidden:
    return Forbidden(
        f"This server listens on loopback and does not accept the host {host[:100]!r}. To allow it, start the server "
        "with --allowed-host and the name."
    )


class Authenticator:
    """Requires `Authorization: Bearer KEY` or `x-api-key: KEY`, and has an account for each key with limits."""

    def __init__(
        self,
        keys: Callable[[], ApiKeys],
        free_paths: Container[str] = FREE_PATHS,
        guarded: Sequence[BaseRoute] = (),
        accounts: Accounts | None = None,
    ) -> None:
        """`guarded` are routes with their own key."""
        self._keys = keys
        self._free_paths = free_paths
        self._guarded = guarded
        self._accounts = accounts or Accounts()

    def authenticate(self, scope: Scope) -> tuple[Caller, Account | None]:
        """Return the caller, and the account whose limits apply to the request. Raises Unauthorized."""
        if scope["path"] in self._free_paths:
            return ANYBODY, None
        key = self._find(Headers(scope=scope))
        if key is not None:
            caller = Caller(key.tenant, key.weight, key.min_priority, key.models, share=key.tenant)
            if key.limits == UNLIMITED:
                return caller, None
            account = self._accounts.of(key)
            return replace(caller, account=account), account if scope["method"] == "POST" else None
        if any(route.matches(scope)[0] is Match.FULL for route in self._guarded):
            return ANYBODY, None
        raise Unauthorized("Missing or invalid API key: Authorization: Bearer KEY")

    def _find(self, headers: Headers) -> ApiKey | None:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        keys = self._keys()
        found = keys.find(bearer.strip().encode("latin-1")) if scheme.lower() == "bearer" else None
        return found or keys.find(headers.get("x-api-key", "").strip().encode("latin-1"))


class RequestMiddleware:
    """Surrounds the whole application, so that rejected requests are recorded too."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[RequestListener] = (),
        *,
        readiness: Readiness | None = None,
        authenticator: Authenticator | None = None,
        allowed_hosts: AllowedHosts | None = None,
        bodies: BodySettings | None = None,
        records_prompts: bool = False,
        names_workers: bool = False,
        request_timeout_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`listeners` get each record when its request has ended, a StartListener also when it begins.

        request_timeout_s: the maximum time of a request from its arrival; its client may set a shorter one.
        names_workers: add a header that names the request's worker and the reason for its choice.
        """
        self._app = app
        self._on_end = [each.on_end for each in listeners]
        self._on_start = [each.on_start for each in listeners if isinstance(each, StartListener)]
        self._readiness = readiness or Readiness()
        self._authenticator = authenticator
        self._allowed_hosts = allowed_hosts
        self._bodies = BodyBudget(bodies)
        self._pace = Pace(_BEGIN_AT_ONCE)
        self._records_prompts = records_prompts
        self._names_workers = names_workers
        self._request_timeout_s = request_timeout_s
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = self._open(scope, receive, send)
        record = context.record

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                self._add_headers(message, context)
            await send(message)

        try:
            await self._serve(context, scope, receive, send_with_headers)
        finally:
            if context.goes_on is None:
                self._end(context, scope)
            else:
                context.goes_on.add_done_callback(lambda _: self._end(context, scope))

    def _end(self, context: RequestContext, scope: Scope) -> None:
        """Complete the record of a request, and give back what it holds."""
        record = context.record
        if context.leave is not None:
            context.leave()
        context.body.release()
        if context.memory is not None:
            context.memory.release()
        self._readiness.in_flight -= 1
        record.ended_at = self._clock()
        record.status = record.status or CLIENT_CLOSED_REQUEST
        record.route = getattr(scope.get("route"), "path", record.route)
        record.tenant = context.caller.tenant
        call_each(self._on_end, record)

    def _open(self, scope: Scope, receive: Receive, send: Send) -> RequestContext:
        """Return the context of a request that begins, with its record."""
        headers = dict(reversed(scope["headers"]))
        record = RequestRecord(scope["method"], self._clock(), keeps_prompt=self._records_prompts)
        if b"traceparent" in headers:
            record.trace_headers = trace_headers(scope["headers"])
        connection = scope.get("extensions", {}).get(CONNECTION_EXTENSION) or AsgiConnection(receive, send)
        context = scope[CONTEXT] = RequestContext(
            connection, record, headers, self._readiness, BodyMemory(self._bodies), clock=self._clock
        )
        self._readiness.in_flight += 1
        if self._on_start:
            call_each(self._on_start, record)
        return context

    async def _serve(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application, and respond to what it raises. Raises what nobody expected after the response."""
        try:
            try:
                self._admit(context, scope)
                context.body.share = context.connection.share = context.caller.share
                if context.account is not None:
                    context.leave = await context.account.enter()
            except TokenwireError as error:
                await _reject(error, context, scope, receive, send)
                return
            if (turn := self._pace.begin(context.body.share)) is not None:
                await turn
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            # A response that has started is ended by its route.
            if context.drain_error is None:
                raise
            if not context.record.status:
                await error_response(context.drain_error, scope)(scope, receive, send)
        except Exception as error:
            begun, expected = context.record.status, response_to(error, scope)
            if expected is not None:
                # Its frames have the request, and some of them the error: in such a cycle all of it would be kept.
                error.__traceback__ = None
            response = expected or response_to_unexpected(error, scope)
            if not begun:
                await response(scope, receive, send)
            if begun or expected is None:
                raise  # the server closes the connection

    def _admit(self, context: RequestContext, scope: Scope) -> None:
        """Check the headers. Raises Forbidden, Unauthorized, InvalidRequest, UnsupportedCoding or TooLarge."""
        if self._allowed_hosts is not None:
            self._allowed_hosts.check(scope)
        if self._authenticator is not None:
            context.caller, context.account = self._authenticator.authenticate(scope)
        elif client := scope.get("client"):
            context.caller = caller_at(client[0])
        timeout_s = self._timeout_s(context.headers)
        if timeout_s is not None:
            context.deadline = context.record.began_at + timeout_s
        declared = context.headers.get(b"content-length", b"0")
        limit = self._bodies.max_body_bytes
        if limit is not None and declared.isdigit() and int(declared) > limit:
            raise TooLarge(f"The request's body has {int(declared)} bytes, more than {limit} (--max-body-mb).")
        if _CODING_HEADER in context.headers:
            context.decode = decoder_of(context.headers[_CODING_HEADER])

    def _timeout_s(self, headers: Mapping[bytes, bytes]) -> float | None:
        """Return the shorter of the client's timeout and the server's; None without either. Raises InvalidRequest."""
        if _TIMEOUT_HEADER not in headers:
            return self._request_timeout_s
        return min(_seconds(headers[_TIMEOUT_HEADER]), self._request_timeout_s or math.inf)

    def _add_headers(self, message: Message, context: RequestContext) -> None:
        if context.account is not None:
            MutableHeaders(scope=message).update(_rate_limit_headers(context.account))
        if context.record.finishes and any(finish.resumed for finish in context.record.finishes):
            MutableHeaders(scope=message)[RESUMED_HEADER] = "true"
        if self._names_workers and context.handle is not None:
            MutableHeaders(scope=message)[WORKER_HEADER] = context.handle.explain()  # final only now
            if context.record.divergence is not None:
                MutableHeaders(scope=message)[PREFIX_HEADER] = _shown(context.record.divergence)


def _shown(divergence: PrefixDivergence) -> str:
    """Return where a prompt left the last one of its session, on one line of ASCII."""
    shown = f"cause={divergence.cause}; tokens={divergence.token}"
    if divergence.message is not None:
        shown += f"; message={divergence.message}"
    return f"{shown}; text={json.dumps(divergence.text)}" if divergence.text else shown


def _rate_limit_headers(account: Account) -> dict[str, str]:
    """Return OpenAI's headers of what is left to a key."""
    headers = {}
    for name, bucket in account.buckets().items():
        headers[f"x-ratelimit-limit-{name}"] = str(bucket.limit)
        headers[f"x-ratelimit-remaining-{name}"] = str(bucket.available)
        headers[f"x-ratelimit-reset-{name}"] = f"{math.ceil(bucket.wait_s(bucket.limit))}s"
    return headers


def _seconds(header: bytes) -> float:
    text = header.decode("latin-1")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise InvalidRequest(
            f"X-Request-Timeout must be a positive number of seconds, got {text[:100]!r}.", param="X-Request-Timeout"
        )
    return seconds


async def _reject(error: TokenwireError, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(error, scope)
    length = context.headers.get(b"content-length", b"")
    if scope["method"] == "POST" and not (length.isdigit() and int(length) <= SMALL_BYTES):
        # The body is not read: discarding a large one would keep the connection busy at the sender's will.
        response.headers["connection"] = "close"
    await response(scope, receive, send)


class PathDispatch:
    """Finds routes without parameters by their paths, and all others as Starlette does."""

    def __init__(self, router: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._router = router
        self._exact = {
            (method, route.path): route
            for route in routes
            if isinstance(route, Route) and not route.param_convertors
            for method in route.methods or ()
            if _first_match(routes, method, route.path) is route
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route = self._exact.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            return self._router(scope, receive, send)
        scope["route"] = route
        return route.app(scope, receive, send)


def _first_match(routes: Sequence[BaseRoute], method: str, path: str) -> BaseRoute | None:
    scope = {"type": "http", "method": method, "path": path}
    return next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
