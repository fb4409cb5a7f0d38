"""Redis as coordinators share state in it: every wait is bounded, and after an error it is skipped for a while."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tokenwire.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

_SCHEMES = ("redis", "rediss", "unix")
TIMEOUT_S = 0.25
PAUSE_S = 2.0
"""How long it is skipped after an error."""
_MAX_CONNECTIONS = 32
_AT_ONCE = 16
_TURN_S = 5.0
"""How long a burst may wait for its turns."""


def check_url(url: str, flag: str) -> None:
    """Check an option that names a Redis. Raises InvalidRequest."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidRequest(f"{flag} must be a URL with one of the schemes {', '.join(_SCHEMES)}.")
    if parts.password:
        raise InvalidRequest(f"{flag} must not contain a password; use {flag}-password-file.")
    if find_spec("redis") is None:
        raise InvalidRequest(f"{flag} needs the package redis: pip install 'tokenwire[redis]'")


def open_redis(url: str, password: str | None, timeout_s: float = TIMEOUT_S) -> "Redis":
    """Return a client of a Redis; it connects on first use."""
    # Imported here: most coordinators need none.
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as RedisConnectionError

    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=_MAX_CONNECTIONS,
        timeout=timeout_s,
        password=password,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 1, (RedisConnectionError,)),  # a connection may have been closed while idle
    )
    return Redis.from_pool(pool)


class RedisHealth:
    """Whether a Redis is to be used now, and the log of its failures."""

    def __init__(self, instead: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`instead`: what happens without it, for the log."""
        self._instead = instead
        self._clock = clock
        self._paused_until: float | None = None
        self.places = asyncio.Semaphore(_AT_ONCE)
        """Of those who wait for an answer."""

    @property
    def is_paused(self) -> bool:
        """Whether it failed a moment ago and is skipped."""
        return self._paused_until is not None and self._clock() < self._paused_until

    async def resume(self) -> None:
        """Wait until it is to be used again."""
        if self._paused_until is not None:
            await asyncio.sleep(max(0.0, self._paused_until - self._clock()))

    @property
    def has_failed(self) -> bool:
        """Whether its last use was a failure."""
        return self._paused_until is not None

    def on_error(self, error: Exception) -> None:
        """Skip it for a while."""
        if self._paused_until is None:
            log.warning("Redis failed, %s until it responds: %s", self._instead, str(error) or "no answer")
        self._paused_until = self._clock() + PAUSE_S

    def on_success(self) -> None:
        """Use it again."""
        if self._paused_until is not None:
            log.warning("Redis responds again")
            self._paused_until = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for an answer among a few others: a burst that waits for connections would take a busy Redis for one
        that is away. Raises TimeoutError if there is no place for long.
        """
        async with asyncio.timeout(_TURN_S):
            await self.places.acquire()
        try:
            yield
        finally:
            self.places.release()

    @asynccontextmanager
    async def answers(self, store: str, wait_s: float) -> AsyncIterator[None]:
        """Surround what waits for a store in this Redis. Raises Unavailable in place of errors, and after `wait_s`."""
        try:
            async with self.turn():
                if self.is_paused:
                    raise no_answer(store)
                async with asyncio.timeout(wait_s):
                    yield
        except Unavailable:
            raise
        except Exception as error:  # whatever a server says
            self.on_error(error)
            raise (no_room(store) if _is_full(error) else no_answer(store)) from error
        self.on_success()


def is_away(error: Exception) -> bool:
    """Return whether an error means that a Redis cannot write now; others are answers of its, which stay the same."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import ReadOnlyError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    return isinstance(error, OSError | RedisConnectionError | RedisTimeoutError | ReadOnlyError)


def _is_full(error: Exception) -> bool:
    from redis.exceptions import OutOfMemoryError

    return isinstance(error, OutOfMemoryError)


def no_room(store: str) -> Unavailable:
    """Return the error for what a store has no memory for now."""
    return Unavailable(f"{store} has no room. Try again.", retry_after_s=PAUSE_S)


def no_answer(store: str) -> Unavailable:
    """Return the error for what needs a store that does not answer now."""
    return Unavailable(f"{store} does not answer. Try again.", retry_after_s=PAUSE_S)
