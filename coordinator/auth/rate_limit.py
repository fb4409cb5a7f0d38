"""Rate limits of a key within one process: concurrent requests, requests and tokens per minute."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from tokenwire.errors import Overloaded

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a key; None: unlimited."""

    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Of prompts and replies."""


UNLIMITED = Limits()
_LIMITED = {
    "max_concurrent": "requests at a time",
    "requests_per_minute": "requests per minute",
    "tokens_per_minute": "tokens per minute",
}
"""What each counts."""


class Bucket:
    """A token bucket with the capacity of one minute. It may be overdrawn, and then stays empty for longer."""

    __slots__ = ("_clock", "_filled_at", "_level", "limit")

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._clock = clock
        self._level = float(limit)
        self._filled_at = clock()

    def take(self, amount: int) -> None:
        """Take an amount, even beyond what is available."""
        self._fill()
        self._level -= amount

    def give_back(self, amount: int) -> None:
        """Put back what was taken and not used, or take more if negative; what exceeds the capacity is lost."""
        self._fill()
        self._level = min(self.limit, self._level + amount)

    def reset(self, level: float) -> None:
        """Set what is available now."""
        self._level, self._filled_at = level, self._clock()

    @property
    def available(self) -> int:
        """The amount available."""
        self._fill()
        return max(0, math.floor(self._level))

    def wait_s(self, level: float) -> float:
        """Return the seconds until the level is reached."""
        self._fill()
        return max(0.0, (level - self._level) * _MINUTE_S / self.limit)

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.limit, self._level + (now - self._filled_at) * self.limit / _MINUTE_S)
        self._filled_at = now


class Reservation:
    """Tokens that a request took before it used them."""

    __slots__ = ("_give_back", "_tokens", "settled")

    def __init__(self, tokens: int, give_back: Callable[[int], None]) -> None:
        """`give_back` puts tokens back, or takes more if negative."""
        self._tokens = tokens
        self._give_back = give_back
        self.settled = False

    def settle(self, used: int) -> None:
        """Give back what was not used, or take what was used beyond it. Only the first call counts."""
        if not self.settled:
            self.settled = True
            self._give_back(self._tokens - used)


class Account:
    """The usage of a key."""

    def __init__(self, tenant: str, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._tenant = tenant
        self._running = 0
        self._requests = _bucket(limits.requests_per_minute, clock)
        self._tokens = _bucket(limits.tokens_per_minute, clock)

    async def enter(self) -> Callable[[], None]:
        """Start a request; return what ends it, to be called once. Raises Overloaded."""
        self._enter()
        return self._leave

    async def reserve(self, tokens: int) -> Reservation:
        """Take the most tokens that a request may use, at most a minute's, until they are settled. Raises Overloaded.

        There must be a limit of tokens.
        """
        return self._reserve(tokens)

    @property
    def is_idle(self) -> bool:
        """Whether it is as a new one would be."""
        return not self._running and all(bucket.available >= bucket.limit for bucket in self.buckets().values())

    def buckets(self) -> dict[str, Bucket]:
        """Return the buckets of the limits per minute, by what they count."""
        both = {"requests": self._requests, "tokens": self._tokens}
        return {name: bucket for name, bucket in both.items() if bucket is not None}

    def _enter(self) -> None:
        limits = self.limits
        if limits.max_concurrent is not None and self._running >= limits.max_concurrent:
            raise self._rejection("max_concurrent", 1.0)
        if self._requests is not None and self._requests.available < 1:
            raise self._rejection("requests_per_minute", self._requests.wait_s(1))
        if self._tokens is not None and self._tokens.available < 1:
            raise self._rejection("tokens_per_minute", self._tokens.wait_s(1))
        if self._requests is not None:
            self._requests.take(1)
        self._running += 1

    def _leave(self) -> None:
        assert self._running, "a request ended twice"
        self._running -= 1

    def _reserve(self, tokens: int) -> Reservation:
        bucket = self._tokens
        assert bucket is not None, "no limit of tokens"
        if bucket.available < tokens:
            raise self._token_rejection(tokens, bucket.available, bucket.wait_s(tokens))
        bucket.take(tokens)
        return Reservation(tokens, bucket.give_back)

    def _token_rejection(self, tokens: int, left: int, wait_s: float) -> Overloaded:
        details = f" The request may use {tokens}, and {left} are left."
        return self._rejection("tokens_per_minute", wait_s, details)

    def _rejection(self, name: str, wait_s: float, details: str = "") -> Overloaded:
        """Return the error of a limit of this name."""
        limit = f"{getattr(self.limits, name)} {_LIMITED[name]} (`{name}` in --api-keys-file)"
        return Overloaded(f"Rate limit reached for {self._tenant}: {limit}.{details}", retry_after_s=math.ceil(wait_s))


def _bucket(limit: int | None, clock: Callable[[], float]) -> Bucket | None:
    return None if limit is None else Bucket(limit, clock)
