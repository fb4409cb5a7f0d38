"""The usage of API keys in Redis, which coordinators and processes share.

Each limit is checked and taken by one script, so concurrent requests cannot both take the last of it. What ends is
written in the background: no request and no stream waits for that.
"""

import asyncio
import itertools
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tokenwire.coordinator.auth.limit_store import Lease, SharedUsage
from tokenwire.coordinator.auth.rate_limit import Limits
from tokenwire.coordinator.shared_redis import PAUSE_S, TIMEOUT_S, RedisHealth, open_redis

_PREFIX = b"tokenwire:limits:1:"
_LEASE_S = 60
"""How long a request counts as running after the last sign of life of its coordinator."""
_RENEWAL_S = 20.0

_BUCKETS = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local per_minute = {requests = tonumber(ARGV[1]), tokens = tonumber(ARGV[2])}
local state = redis.call('HMGET', KEYS[1], 'requests', 'tokens', 'at')
local stored = {requests = tonumber(state[1]), tokens = tonumber(state[2])}
local passed = math.max(0, now - (tonumber(state[3]) or now))
local left = {}
for name, limit in pairs(per_minute) do
  left[name] = limit < 0 and 0 or math.min(limit, (stored[name] or limit) + passed * limit / 60)
end
local function store()
  local full = 60
  for name, limit in pairs(per_minute) do
    if limit > 0 then full = math.max(full, (limit - left[name]) * 60 / limit) end
    if limit >= 0 then redis.call('HSET', KEYS[1], name, string.format('%.17g', left[name])) end
  end
  redis.call('HSET', KEYS[1], 'at', string.format('%.6f', now))
  redis.call('EXPIRE', KEYS[1], math.ceil(full) + 60)
end
local function answer(refused)
  return {refused, string.format('%.6f', left.requests), string.format('%.6f', left.tokens)}
end
"""
"""KEYS: a hash with what is left of both limits per minute, and when that was. ARGV: the limits, -1 for none."""

_ENTER = (
    _BUCKETS
    + """
local most, lease = tonumber(ARGV[3]), ARGV[4]
if most >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  if redis.call('ZCARD', KEYS[2]) >= most then return answer('concurrent') end
end
if per_minute.requests >= 0 and left.requests < 1 then return answer('requests') end
if most >= 0 then
  redis.call('ZADD', KEYS[2], now + tonumber(ARGV[5]), lease)
  redis.call('EXPIRE', KEYS[2], ARGV[5])
end
left.requests = left.requests - 1
store()
return answer('')
"""
)
"""KEYS[2]: the running requests by when they expire. ARGV: their limit, the request, and its seconds."""

_TAKE = (
    _BUCKETS
    + """
local tokens = tonumber(ARGV[3])
if ARGV[4] == 'ask' and left.tokens < tokens then return answer('tokens') end
left.tokens = math.min(per_minute.tokens, left.tokens - tokens)
store()
return answer('')
"""
)
"""ARGV: the tokens to take, or to give back if negative; `ask` to take them only if so many are left."""

_RENEW = """
local now = redis.call('TIME')
for index = 2, #ARGV do redis.call('ZADD', KEYS[1], now[1] + ARGV[1], ARGV[index]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
"""


class RedisLimitStore:
    """A LimitStore in Redis. While that fails, nothing is counted, and tokens that are given back are forgotten."""

    def __init__(self, url: str, password: str | None, timeout_s: float = TIMEOUT_S) -> None:
        """Configure the client; it connects on first use. `timeout_s`: how long a request waits for it."""
        self.failures = 0
        """How often it failed."""
        self._redis = open_redis(url, password, timeout_s)
        self._timeout_s = timeout_s
        self._health = RedisHealth("limiting API keys in each process by itself")
        self._enter, self._take, self._renew = map(self._redis.register_script, (_ENTER, _TAKE, _RENEW))
        self._process = secrets.token_bytes(8)
        self._numbers = itertools.count()
        self._running: dict[bytes, dict[Lease, None]] = {}
        """The requests of each key with a limit on them, which this process renews."""
        self._left: dict[bytes, list[Lease]] = {}
        self._given: dict[tuple[bytes, Limits], int] = {}
        """What has ended and is not written yet."""
        self._failing_since: float | None = None
        """When the first of several writes failed."""
        self._has_ended = asyncio.Event()
        self._writing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    async def enter(self, key: bytes, limits: Limits) -> tuple[Lease, SharedUsage | None]:
        """Count a request that starts, until it leaves."""
        lease = self._process + next(self._numbers).to_bytes(8)
        if limits.max_concurrent is not None:
            self._running.setdefault(key, {})[lease] = None
            self._start_writer()
        arguments = (_argument(limits.max_concurrent), lease, _LEASE_S)
        try:
            usage = await self._call(self._enter, [_bucket(key), _leases(key)], limits, *arguments)
        except BaseException:
            self.leave(key, lease)
            raise
        if usage is not None and usage.refused:
            self._forget(key, lease)
        return lease, usage

    def leave(self, key: bytes, lease: Lease) -> None:
        """End a request, soon."""
        if self._forget(key, lease):
            self._left.setdefault(key, []).append(lease)
            self._has_ended.set()

    async def take(self, key: bytes, limits: Limits, tokens: int) -> SharedUsage | None:
        """Take tokens if so many are left."""
        return await self._call(self._take, [_bucket(key)], limits, tokens, "ask")

    def give_back(self, key: bytes, limits: Limits, tokens: int) -> None:
        """Give tokens back, or take more if negative, soon."""
        self._given[key, limits] = self._given.get((key, limits), 0) + tokens
        self._has_ended.set()
        self._start_writer()

    async def close(self) -> None:
        """Write what has ended, if Redis responds, and disconnect."""
        if self._writer is not None:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
        for key, leases in self._running.items():
            self._left.setdefault(key, []).extend(leases)
        self._running.clear()
        if not self._health.is_paused:
            await self._write(renews=False)
        await self._redis.aclose()

    async def _call(self, script: Any, keys: Sequence[bytes], limits: Limits, *arguments: Any) -> SharedUsage | None:
        try:
            async with self._health.turn():
                if self._health.is_paused:
                    return None
                async with asyncio.timeout(self._timeout_s):
                    refused, requests, tokens = await script(keys, [*_per_minute(limits), *arguments])
        except Exception as error:  # no server response may fail a request
            self._on_error(error)
            return None
        self._health.on_success()
        return SharedUsage(refused.decode(), float(requests), float(tokens))

    def _forget(self, key: bytes, lease: Lease) -> bool:
        """Stop renewing a request; return whether it was."""
        running = self._running.get(key, {})
        if lease not in running:
            return False
        del running[lease]
        if not running:
            del self._running[key]
        return True

    def _start_writer(self) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_always())

    async def _write_always(self) -> None:
        """Write what has ended, in order, and renew what has not."""
        loop = asyncio.get_running_loop()
        renewal = loop.time() + _RENEWAL_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(renewal):
                    await self._has_ended.wait()
            if self._health.is_paused:
                await asyncio.sleep(PAUSE_S)
            renews = loop.time() >= renewal
            if renews:
                renewal = loop.time() + _RENEWAL_S
            await self._write(renews)

    async def _write(self, renews: bool) -> None:
        """Write tokens once: if it is not known whether Redis took them, they are not written again."""
        async with self._writing:
            left, self._left = self._left, {}
            given, self._given = self._given, {}
            self._has_ended.clear()
            try:
                async with self._redis.pipeline(transaction=False) as pipe:
                    for key, running in self._running.items() if renews else ():
                        await self._renew([_leases(key)], [_LEASE_S, *running], client=pipe)
                    for key, leases in left.items():
                        pipe.zrem(_leases(key), *leases)
                    for (key, limits), tokens in given.items():
                        await self._take([_bucket(key)], [*_per_minute(limits), -tokens, ""], client=pipe)
                    async with asyncio.timeout(max(self._timeout_s, PAUSE_S)):
                        await pipe.execute()
                self._failing_since = None
            except Exception as error:  # as above
                self._on_error(error)
                self._end_again(left)

    def _end_again(self, left: Mapping[bytes, Sequence[Lease]]) -> None:
        """End requests once Redis responds, unless they expire before."""
        now = asyncio.get_running_loop().time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since < _LEASE_S:
            for key, leases in left.items():
                self._left.setdefault(key, []).extend(leases)
            self._has_ended.set()

    def _on_error(self, error: Exception) -> None:
        self.failures += 1
        self._health.on_error(error)


def _per_minute(limits: Limits) -> tuple[int, int]:
    return _argument(limits.requests_per_minute), _argument(limits.tokens_per_minute)


def _argument(limit: int | None) -> int:
    return -1 if limit is None else limit


def _bucket(key: bytes) -> bytes:
    return _PREFIX + key


def _leases(key: bytes) -> bytes:
    return _PREFIX + key + b":running"
