"""The accounts of API keys with limits: of one process alone, or counted in a store that processes share."""

import logging
import math
from collections.abc import Callable
from functools import partial
from hashlib import blake2b

from tokenwire.coordinator.auth.api_keys import ApiKey, AuthSettings
from tokenwire.coordinator.auth.limit_store import Lease, LimitStore, SharedUsage
from tokenwire.coordinator.auth.rate_limit import Account, Bucket, Limits, Reservation
from tokenwire.coordinator.auth.redis_limit_store import RedisLimitStore
from tokenwire.errors import Overloaded
from tokenwire.process.pruned_dict import PrunedDict

log = logging.getLogger(__name__)

_NAME_BYTES = 16
_KEPT = 64


class Accounts:
    """The usage of each key."""

    def __init__(self, store: LimitStore | None = None) -> None:
        """`store`: what processes share; None: each has its own limits."""
        self.store = store
        self._accounts = PrunedDict[bytes, Account](lambda account: not account.is_idle, _KEPT)  # keys are rotated

    def of(self, key: ApiKey) -> Account:
        """Return the account of a key, a new one if its limits have changed."""
        account = self._accounts.get(key.digest)
        if account is None or account.limits != key.limits:
            account = self._accounts[key.digest] = self._open(key)
        return account

    async def close(self) -> None:
        """Write what has ended, and disconnect."""
        if self.store is not None:
            await self.store.close()

    def _open(self, key: ApiKey) -> Account:
        if self.store is None:
            return Account(key.tenant, key.limits)
        # Who reads the store does not learn digests of keys.
        name = blake2b(key.digest, digest_size=_NAME_BYTES).hexdigest().encode()
        return SharedAccount(key.tenant, key.limits, name, self.store)


def open_accounts(settings: AuthSettings, limited: bool = False, processes: int = 1) -> Accounts:
    """Return the accounts of keys, in the configured store; log what each process counts by itself."""
    if processes > 1:
        own = "a queue" if settings.limits_store is not None else "a queue, shares of it"
        log.info("1 of %d processes: each has %s, and limits of bodies and buffers of its own", processes, own)
    if settings.limits_store is None:
        if limited:
            log.info("limits of API keys: counted by this process alone, 1 of %d; see --limits-store", processes)
        return Accounts()
    log.info("shares of tenants: counted by all processes with this store together")
    if limited:
        log.info("limits of API keys: counted by all processes with this store together")
    return Accounts(RedisLimitStore(settings.limits_store, settings.limits_store_password))


class SharedAccount(Account):
    """The usage of a key by all processes. Where the store fails, it is that by this process."""

    def __init__(self, tenant: str, limits: Limits, name: bytes, store: LimitStore) -> None:
        super().__init__(tenant, limits)
        self._name = name
        self._store = store
        self._shared = Account(tenant, limits).buckets()
        """What the store said last."""

    async def enter(self) -> Callable[[], None]:
        """Start a request here, then in the store."""
        # What is over the limits by itself needs no question.
        self._enter()
        if self.limits.max_concurrent is None and self.limits.requests_per_minute is None:
            return self._leave
        try:
            lease, usage = await self._store.enter(self._name, self.limits)
            self._take(usage)
            if usage is not None and usage.refused:
                raise self._refusal(usage)
        except BaseException:
            self._leave()
            if self._requests is not None:
                self._requests.give_back(1)
            raise
        return partial(self._end, lease)

    async def reserve(self, tokens: int) -> Reservation:
        """Take tokens here, then in the store."""
        own = self._reserve(tokens)
        try:
            usage = await self._store.take(self._name, self.limits, tokens)
            self._take(usage)
            if usage is not None and usage.refused:
                raise self._token_rejection(tokens, max(0, math.floor(usage.tokens)), self._wait_s("tokens", tokens))
        except BaseException:
            own.settle(0)
            raise
        return own if usage is None else Reservation(tokens, partial(self._give_back, own, tokens))

    def buckets(self) -> dict[str, Bucket]:
        """Return the emptier ones of this process and of all."""
        return {
            name: min(bucket, self._shared[name], key=lambda each: each.available)
            for name, bucket in super().buckets().items()
        }

    def _end(self, lease: Lease) -> None:
        self._leave()
        self._store.leave(self._name, lease)

    def _take(self, usage: SharedUsage | None) -> None:
        if usage is not None:
            for name, bucket in self._shared.items():
                bucket.reset(usage.requests if name == "requests" else usage.tokens)

    def _give_back(self, own: Reservation, reserved: int, tokens: int) -> None:
        own.settle(reserved - tokens)
        self._shared["tokens"].give_back(tokens)
        self._store.give_back(self._name, self.limits, tokens)

    def _refusal(self, usage: SharedUsage) -> Overloaded:
        if usage.refused == "concurrent":
            return self._rejection("max_concurrent", 1.0)
        return self._rejection("requests_per_minute", self._wait_s("requests", 1))

    def _wait_s(self, name: str, level: float) -> float:
        return self._shared[name].wait_s(level)
