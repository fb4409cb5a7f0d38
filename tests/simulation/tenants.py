"""Tenants of a simulated fleet: their API keys, and an account of each key beside the one that is checked.

Requests are judged at the ASGI boundary of one coordinator process, by the documented limits alone. Who is over them is
rejected with the documented status and in its own tenant's name, and nobody else is.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.simulation.key_account import ADMITTED, KeyAccount, KeySpec
from tests.simulation.limited_head import UNAUTHORIZED, LimitedHead
from tests.simulation.world import World
from tokenwire.coordinator.auth.api_keys import ApiKey
from tokenwire.coordinator.auth.rate_limit import Limits
from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.observability.metrics.tenants import TenantMetrics

ABORT_ROUTE = "/abort_requests"
"""Of the routes that an operator calls, the one that wants a tenant's key, not the admin key."""
_OPERATOR_ROUTES = frozenset(
    {
        *(ABORT_ROUTE, "/pause", "/resume", "/sleep", "/wake_up", "/reset_prefix_cache"),
        *("/update_weights", "/update_weight_version", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
    }
)
_OPERATOR, _OPERATOR_KEY = "operator", b"operator"
WRONG_KEY = -1
"""The number of a key that nobody has."""


def draw_keys(rng: random.Random, numbers: Sequence[int], limits: Sequence[int | None]) -> list[dict[str, Any]]:
    """Draw the keys of one of these numbers of tenants: one or two for each, with some of these limits."""
    pick = rng.choice
    tenants = [f"tenant-{number}" for number in range(pick(numbers)) for _ in range(pick([1, 1, 2]))]
    weights = {tenant: pick([1, 1, 3]) for tenant in tenants}
    return [
        {
            "tenant": tenant,
            "max_concurrent": pick([*limits, None if limits == [None] else 2]),
            "requests_per_minute": pick(limits),
            "tokens_per_minute": pick([None if limit is None else 100 * limit for limit in limits]),
            "min_priority": pick([None, None, None, 1]),
            "models": pick([None, None, None, None, ["simulated"], ["red"]]),
            "weight": weights[tenant],
        }
        for tenant in tenants
    ]


def draw_key(rng: random.Random, keys: Sequence[KeySpec]) -> int | None:
    """Draw the key of a request: seldom a wrong one, or none."""
    if not keys:
        return None
    return rng.choices([rng.randrange(len(keys)), WRONG_KEY, None], [0.92, 0.05, 0.03])[0]


def key_headers(number: int | None) -> list[tuple[bytes, bytes]]:
    """Return the header with a key, as OpenAI's clients send it or as Anthropic's do."""
    if number is None:
        return []
    key = _secret(number)
    return [(b"x-api-key", key)] if number % 2 else [(b"authorization", b"Bearer " + key)]


def operator_headers(keys: Sequence[KeySpec]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header with the operator's own key, which has no limits; none where nobody has a key."""
    return ((b"authorization", b"Bearer " + _OPERATOR_KEY),) if keys else ()


def address_of(spec: Mapping[str, Any]) -> str:
    """Return the address of a request's client: one of three."""
    return f"10.1.0.{sum(spec['id'].encode()) % 3}"


def api_keys(keys: Sequence[KeySpec]) -> tuple[ApiKey, ...]:
    """Return the keys as settings have them."""
    operators = (ApiKey(sha256(_OPERATOR_KEY).digest(), _OPERATOR),) if keys else ()
    return operators + tuple(
        ApiKey(
            sha256(_secret(number)).digest(),
            key["tenant"],
            Limits(key["max_concurrent"], key["requests_per_minute"], key["tokens_per_minute"]),
            key["min_priority"] or 0,
            None if key["models"] is None else frozenset(key["models"]),
            key["weight"],
        )
        for number, key in enumerate(keys)
    )


def _secret(number: int) -> bytes:
    return b"key-%d" % number


def is_operation(path: str) -> bool:
    """Return whether an operator calls a route, and no tenant."""
    return path in _OPERATOR_ROUTES or path.startswith("/v1/rl/")


class Tenants:
    """Who a client is, by the keys of a fleet."""

    def __init__(self, keys: Sequence[KeySpec]) -> None:
        self._keys = keys

    def tenant_of(self, spec: Mapping[str, Any]) -> str:
        """Return the tenant of a script's request; empty without one."""
        return self._keys[spec["key"]]["tenant"] if self._has_key(spec) else ""

    def share_of(self, spec: Mapping[str, Any]) -> str:
        """Return who gets a share of the queue for a request."""
        return self.tenant_of(spec) if self._keys else address_of(spec)

    def weight_of(self, spec: Mapping[str, Any]) -> int:
        """Return the weight of its tenant."""
        return int(self._keys[spec["key"]]["weight"]) if self._has_key(spec) else 1

    def least_priority(self, spec: Mapping[str, Any]) -> int:
        """Return the priority with which a request is queued."""
        least = self._keys[spec["key"]]["min_priority"] or 0 if self._has_key(spec) else spec["priority"]
        return int(max(spec["priority"], least))

    def may_share(self, spec: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether two requests may have the ids of one conversation: they have one tenant, and one model."""
        return (spec["model"], self.tenant_of(spec)) == (other["model"], self.tenant_of(other))

    def refusal(self, spec: Mapping[str, Any], model: str) -> int | None:
        """Return the status with which a request is rejected, whatever the state of the fleet; None: it is not."""
        if not self._keys:
            return None
        if not self._has_key(spec):
            return 401
        models = self._keys[spec["key"]]["models"]
        return None if models is None or model in models else 403

    def tokens_per_minute(self, spec: Mapping[str, Any]) -> int | None:
        """Return the most tokens that a request may use; None: any number."""
        limit: int | None = self._keys[spec["key"]]["tokens_per_minute"] if self._has_key(spec) else None
        return limit

    def _has_key(self, spec: Mapping[str, Any]) -> bool:
        return bool(self._keys) and spec["key"] is not None and spec["key"] != WRONG_KEY


class TenantWitness:
    """Stands before the application of one coordinator process: judges whom it serves, and in whose name."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[KeySpec],
        world: World,
        violate: Callable[[str], None],
        reached: Counter[str],
        context_tokens: int,
    ) -> None:
        """`context_tokens`: the most of a prompt and its reply."""
        self.requests: Counter[str] = Counter()
        """Finished requests by tenant."""
        self._app = app
        self._world = world
        self._violate = violate
        self._reached = reached
        self._accounts = [KeyAccount(key, world.time(), context_tokens) for key in keys]
        self._by_header = {
            header: account for number, account in enumerate(self._accounts) for header in key_headers(number)
        }
        self._numbers = itertools.count()

    def observe(self) -> None:
        """Look at all charges: the more often, the closer the accounts."""
        for account in self._accounts:
            account.observe(self._world.time())

    def metrics_problem(self, metrics: TenantMetrics) -> str:
        """Return what is wrong with the metrics of tenants; empty if nothing."""
        counted: Counter[str] = Counter()
        for (tenant, _), count in metrics._requests.items():
            if tenant != _OPERATOR:
                counted[tenant] += count
        expected = {tenant: count for tenant, count in self.requests.items() if tenant}
        return "" if counted == expected else f"counts {dict(counted)} requests of tenants instead of {expected}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and judge its outcome."""
        if not self._accounts or scope["type"] != "http" or is_operation(scope["path"]):
            await self._app(scope, receive, send)
            return
        account = next((self._by_header[each] for each in scope["headers"] if each in self._by_header), None)
        number, now = next(self._numbers), self._world.time()
        expected = {UNAUTHORIZED} if account is None else account.outcomes(now)
        response, body = LimitedHead(), bytearray()
        if account is not None:
            account.enter(number, scope, body, now)

        async def read() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def watch(message: Message) -> None:
            # A rejection comes before anything else happens in this process.
            is_rejection, is_served = response.take(message), message.get("status") == 200
            if is_served and account is not None:
                self._report(account.headers_problem(dict(message["headers"]), self._world.time()))
            if is_rejection and account is not None:
                if response.outcome != ADMITTED:
                    account.reject(number, self._world.time())
                elif response.asked_for:
                    self._judge_refusal(account, response.asked_for)
                self._report(response.retry_problem(account, self._world.time()))
            await send(message)

        try:
            await self._app(scope, read, watch)
        finally:
            if account is not None and response.outcome == ADMITTED:
                account.leave(number, self._world.time())
                if account.is_overdrawn:
                    self._violate(f"{account.spec['tenant']!r} uses more tokens than its key has")
            self._judge(scope, account, expected, response)

    def _report(self, problem: str) -> None:
        if problem:
            self._violate(problem)

    def _judge_refusal(self, account: KeyAccount, asked_for: int) -> None:
        self._reached["refused for the tokens it might use"] += 1
        self._report(account.refusal_problem(asked_for, self._world.time()))

    def _judge(self, scope: Scope, account: KeyAccount | None, expected: set[str], response: LimitedHead) -> None:
        context: RequestContext | None = scope.get(CONTEXT)
        tenant = "" if account is None else account.spec["tenant"]
        if context is not None:
            self.requests[context.record.tenant] += 1
            if context.record.tenant != tenant:
                self._violate(f"a request of {tenant!r} was served as one of {context.record.tenant!r}")
        if response.outcome not in expected:
            self._violate(f"{tenant!r} got {response.outcome}, expected {sorted(expected)}")
        if response.outcome != ADMITTED:
            self._reached[f"rejected: {response.outcome}"] += 1
        if account is not None:
            for problem in response.problems(account.spec):
                self._violate(f"{tenant!r} got {problem}")
