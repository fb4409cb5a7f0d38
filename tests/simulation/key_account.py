"""The account of one API key at one coordinator process, kept beside the one that is checked."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Scope

from tokenwire.coordinator.generation.context import CONTEXT, RequestContext
from tokenwire.coordinator.generation.service import GenerationHandle

KeySpec = Mapping[str, Any]
"""A key as a file of keys has it, without the key itself."""
ADMITTED = "admitted"
_MINUTE_S = 60.0
_ROUNDING = 1e-6
_AT_A_TIME = "requests at a time"
_LEFT = (b"limit", b"remaining", b"reset")
"""What headers say of each limit per minute."""


@dataclass(slots=True)
class _Level:
    """What is left of a limit per minute, at least and at most: a charge is seen some time after it was made."""

    limit: int
    at: float
    least: float = field(init=False)
    most: float = field(init=False)
    lowest: float = field(init=False)
    """The least that it may have been since the last call but one."""

    def __post_init__(self) -> None:
        self.least = self.most = self.lowest = float(self.limit)

    def advance(self, now: float, charged: float = 0.0, given_back: float = 0.0) -> None:
        """Refill evenly until now; take what was charged, and add what was given back, since the last call."""
        gain = (now - self.at) * self.limit / _MINUTE_S + given_back
        self.lowest = self.least - charged
        self.least = min(self.limit, self.least + gain) - charged
        self.most = min(self.limit, self.most - charged + gain)
        self.at = now

    def possible_headers(self) -> list[dict[bytes, bytes]]:
        """Return what headers may say of it: the limit, what remains, and the seconds until all of it does."""
        remaining = range(*_whole(math.floor, self.least, self.most))
        reset = range(*_whole(math.ceil, *(_MINUTE_S * (1 - each / self.limit) for each in (self.most, self.least))))
        return [
            {b"limit": b"%d" % self.limit, b"remaining": b"%d" % left, b"reset": b"%ds" % seconds}
            for left in remaining
            for seconds in reset
        ]


def _whole(rounded: Callable[[float], int], least: float, most: float) -> tuple[int, int]:
    """Return the bounds of a range of whole numbers, none below 0."""
    return max(0, rounded(least - _ROUNDING)), max(0, rounded(most + _ROUNDING)) + 1


@dataclass(slots=True)
class _Served:
    """A request that is being served."""

    scope: Scope
    body: bytearray
    """Of the request, as far as it was read."""
    context_tokens: int
    """The most of a prompt and its reply."""
    charged: int = 0
    """Its tokens that are counted."""

    def reserved(self) -> int:
        """Return the most that it may use, once it was submitted; 0 before."""
        context: RequestContext | None = self.scope.get(CONTEXT)
        if context is None or context.handle is None:
            return 0
        prompt, fields = context.record.prompt_tokens, json.loads(self.body)
        sampling = fields.get("sampling_params", fields)
        return int(prompt + sampling["n"] * min(sampling["max_tokens"], self.context_tokens - prompt))

    def used(self) -> int:
        """Return the tokens that it has used, once it has ended."""
        context: RequestContext | None = self.scope.get(CONTEXT)
        if context is None or context.handle is None:
            return 0
        return context.record.prompt_tokens + context.record.completion_tokens


class KeyAccount:
    """What one key has used of one coordinator process."""

    def __init__(self, spec: KeySpec, now: float, context_tokens: int) -> None:
        self.spec = spec
        self._context_tokens = context_tokens
        self._serving: dict[int, _Served] = {}
        limits = spec["requests_per_minute"], spec["tokens_per_minute"]
        self._requests, self._tokens = (None if limit is None else _Level(limit, now) for limit in limits)

    @property
    def is_overdrawn(self) -> bool:
        """Whether more tokens are reserved and used than there were."""
        return self._tokens is not None and self._tokens.most < -_ROUNDING

    def outcomes(self, now: float) -> set[str]:
        """Return what may become of a request that arrives now."""
        self.observe(now)
        limit = self.spec["max_concurrent"]
        if limit is not None and len(self._serving) >= limit:
            return {_AT_A_TIME}
        possible = set()
        for level, name in ((self._requests, "requests per minute"), (self._tokens, "tokens per minute")):
            if level is not None and level.least < 1 + _ROUNDING:
                possible.add(name)
            if level is not None and level.most < 1 - _ROUNDING:
                return possible
        return possible | {ADMITTED}

    def refusal_problem(self, asked_for: int, now: float) -> str:
        """Return what is wrong with the rejection, now, of a request that may use so many tokens; empty if nothing."""
        self.observe(now)
        if self._tokens is None:
            return f"{self.spec['tenant']!r} has no limit, and {asked_for} tokens were too many"
        if asked_for < self._tokens.lowest - _ROUNDING:
            return f"{self.spec['tenant']!r} was refused {asked_for} tokens and had {self._tokens.lowest}"
        return ""

    def headers_problem(self, headers: Mapping[bytes, bytes], now: float) -> str:
        """Return what is wrong with the headers that say what is left to it; empty if nothing."""
        self.observe(now)
        for level, name in ((self._requests, b"requests"), (self._tokens, b"tokens")):
            said = {what: headers.get(b"x-ratelimit-%s-%s" % (what, name)) for what in _LEFT}
            if said not in ([dict.fromkeys(_LEFT)] if level is None else level.possible_headers()):
                return f"{self.spec['tenant']!r} was told that it has of {name.decode()}: {said}"
        return ""

    def retry_problem(self, outcome: str, asked_for: int, seconds: int, now: float) -> str:
        """Return what is wrong with the time after which a rejected request may come again; empty if nothing."""
        self.observe(now)
        level = self._requests if outcome.startswith("requests") else self._tokens
        told = f"{self.spec['tenant']!r} was told to wait for {seconds} s"
        if level is None or outcome == _AT_A_TIME:
            return "" if seconds == 1 else f"{told} for other requests to end"
        wanted, rate = asked_for or 1, level.limit / _MINUTE_S
        if level.most + seconds * rate < wanted - _ROUNDING:
            return f"{told}, after which it has {level.most + seconds * rate} of {wanted}"
        if seconds > 1 and level.least + (seconds - 1) * rate > wanted + _ROUNDING:
            return f"{told}, though it has {wanted} earlier"
        return ""

    def enter(self, number: int, scope: Scope, body: bytearray, now: float) -> None:
        """Count a request that was admitted."""
        self._serving[number] = _Served(scope, body, self._context_tokens)
        if self._requests is not None:
            self._requests.advance(now, 1)

    def leave(self, number: int, now: float) -> None:
        """Count the end of a request that was admitted."""
        self.observe(now)
        served = self._serving.pop(number)
        if self._tokens is not None:
            self._tokens.advance(now, *_change(served, served.used()))

    def reject(self, number: int, now: float) -> None:
        """Take a request back that was rejected after all."""
        self.leave(number, now)
        if self._requests is not None:
            self._requests.advance(now, -1)

    def observe(self, now: float) -> None:
        """Count the tokens that were reserved and given back since the last call."""
        charged = given_back = 0
        for served in self._serving.values():
            more, less = _change(served, served.used() if _has_ended(served) else served.reserved())
            charged, given_back = charged + more, given_back + less
        if self._requests is not None:
            self._requests.advance(now)
        if self._tokens is not None:
            self._tokens.advance(now, charged, given_back)


def _change(served: _Served, tokens: int) -> tuple[int, int]:
    """Let a request count as so many tokens; return how many more, and how many fewer, these are."""
    change, served.charged = tokens - served.charged, tokens
    return max(0, change), max(0, -change)


def _has_ended(served: _Served) -> bool:
    """Whether a request has given back what it did not use: its record is complete then."""
    context: RequestContext | None = served.scope.get(CONTEXT)
    if context is None or context.handle is None:
        return False
    assert isinstance(context.handle, GenerationHandle)
    reservation = context.handle.reservation
    return reservation is not None and reservation.settled
