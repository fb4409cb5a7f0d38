"""Limits the data buffered: for slow readers, and of bodies whose requests are not submitted yet."""

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from tokenwire.errors import Unavailable
from tokenwire.options import Bounds, Option, Unit, check_bounds, option

DEFAULT_BACKLOG_BYTES = 512 * 1024 * 1024
_SHARE = 16
"""One reader may use this fraction of the total limit."""
_PATIENCE_S = 5.0
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class BodySettings:
    """Limits on the bodies of requests."""

    max_body_bytes: int = option(
        32 * 2**20, Option("--max-body-mb", "Maximum size of a request body.", unit=Unit.MiB, bounds=Bounds(above=0))
    )
    max_bodies_bytes: int = option(
        192 * 2**20,
        Option(
            "--max-bodies-mb",
            "Maximum memory of all bodies of more than 64 KiB, read and parsed, until their requests are submitted. "
            "Beyond it reading pauses; who waits for longer than 5 s gets a 503.",
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)


class Backpressure:
    """Counts bytes over all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        """Currently buffered bytes."""
        self._limit_bytes = limit_bytes

    def changed(self, before: int, after: int) -> bool:
        """Update a connection's buffered bytes; return whether they are within the limits."""
        self.held_bytes += after - before
        return after <= before or (after <= self._limit_bytes // _SHARE and self.held_bytes <= self._limit_bytes)


class BodyBudget:
    """The memory of all bodies together, read and parsed, until their requests are submitted or answered."""

    def __init__(self, settings: BodySettings | None = None, patience_s: float = _PATIENCE_S) -> None:
        """`settings`: None for no limits. patience_s: how long the reading of a body pauses at most."""
        self.max_body_bytes = None if settings is None else settings.max_body_bytes
        self.held_bytes = 0
        self._limit_bytes = math.inf if settings is None else settings.max_bodies_bytes
        self._patience_s = patience_s
        self._waiting: deque[tuple[BodyMemory, int, asyncio.Future[None]]] = deque()

    async def add(self, memory: "BodyMemory", size: int) -> None:
        """Add to what a body takes, in order of arrival, as soon as there is space. Raises Unavailable."""
        if not self._waiting and self._has_space(memory, size):
            self._hold(memory, size)
            return
        held = asyncio.get_running_loop().create_future()
        waiter = memory, size, held
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._patience_s):
                await held
        except TimeoutError:
            message = "This server reads other large requests. Try again, or raise --max-bodies-mb."
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S) from None
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._let_in()

    def remove(self, size: int) -> None:
        """Remove what a body took."""
        self.held_bytes -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._has_space(*self._waiting[0][:2]):
            memory, size, held = self._waiting.popleft()
            if not held.done():
                self._hold(memory, size)
                held.set_result(None)

    def _has_space(self, memory: "BodyMemory", size: int) -> bool:
        # One that is larger than the whole budget is read alone: else it never would be.
        return self.held_bytes == memory.held_bytes or self.held_bytes + size <= self._limit_bytes

    def _hold(self, memory: "BodyMemory", size: int) -> None:
        self.held_bytes += size
        memory.held_bytes += size


@dataclass(eq=False, slots=True)
class BodyMemory:
    """What the body of one request takes of the budget."""

    budget: BodyBudget
    held_bytes: int = 0

    async def add(self, size: int) -> None:
        """Add bytes; wait while others take the whole budget. Raises Unavailable if that takes too long."""
        await self.budget.add(self, size)

    def release(self) -> None:
        """Give everything back. Safe more than once."""
        if self.held_bytes:
            held, self.held_bytes = self.held_bytes, 0
            self.budget.remove(held)
