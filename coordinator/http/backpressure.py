"""Limits the data buffered: for slow readers, and of bodies whose requests are not submitted yet."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tokenwire.errors import Unavailable
from tokenwire.options import Bounds, Option, Unit, check_bounds, option

DEFAULT_BACKLOG_BYTES = 512 * 1024 * 1024
_SHARE = 16
"""One reader may use this fraction of the total limit."""
_LATER_SHARE = 0.5
"""All bodies but the oldest may take this fraction: the oldest may always take more, and they leave it room."""
_PATIENCE_S = 5.0
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class BodySettings:
    """Limits on the bodies of requests."""

    max_body_bytes: int = option(
        32 * 2**20, Option("--max-body-mb", "Maximum size of a request body.", unit=Unit.MiB, bounds=Bounds(above=0))
    )
    max_bodies_bytes: int = option(
        160 * 2**20,
        Option(
            "--max-bodies-mb",
            "Maximum memory of all bodies of more than 64 KiB, read and parsed, until their requests are submitted. "
            "Beyond it reading pauses; all but the oldest take half of it at most. "
            "Who waits for longer than 5 s gets a 503. Requests that are being received may take as much for their "
            "heads and smaller bodies; beyond it the oldest get a 503.",
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
        self._holders: dict[BodyMemory, None] = {}
        """In order of arrival."""
        self._waiting: dict[BodyMemory, tuple[int, asyncio.Future[None]]] = {}
        """With how much they wait for, in order of arrival here."""
        self._turns = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Give large bodies that are parsed one turn of the event loop each, so that others have theirs in between."""
        async with self._turns:
            await asyncio.sleep(0)
            yield

    async def add(self, memory: "BodyMemory", size: int) -> None:
        """Add to what a body takes as soon as there is space. Raises Unavailable."""
        if self._may_hold(memory, size):
            self._hold(memory, size)
            return
        held = asyncio.get_running_loop().create_future()
        self._waiting[memory] = size, held
        try:
            async with asyncio.timeout(self._patience_s):
                await held
        except TimeoutError:
            message = "This server reads other large requests. Try again, or raise --max-bodies-mb."
            raise Unavailable(message, retry_after_s=_RETRY_AFTER_S) from None
        finally:
            if self._waiting.pop(memory, None) is not None:
                self._let_in()

    def remove(self, memory: "BodyMemory") -> None:
        """Remove all that a body takes."""
        if memory in self._holders:
            del self._holders[memory]
            self.held_bytes -= memory.held_bytes
            memory.held_bytes = 0
            self._let_in()

    def _may_hold(self, memory: "BodyMemory", size: int) -> bool:
        # The oldest always may: it ends, and makes room for the others. Bodies that all wait for the rest never would.
        if memory is next(iter(self._holders), memory):
            return True
        return not self._waiting and self._fits(size)

    def _fits(self, size: int) -> bool:
        """Return whether a body that is not the oldest may take more."""
        later_bytes = self.held_bytes - next((each.held_bytes for each in self._holders), 0)
        return self.held_bytes + size <= self._limit_bytes and later_bytes + size <= _LATER_SHARE * self._limit_bytes

    def _hold(self, memory: "BodyMemory", size: int) -> None:
        self._holders[memory] = None
        self.held_bytes += size
        memory.held_bytes += size

    def _let_in(self) -> None:
        """Let those in that may hold more now: the oldest, then others in order."""
        oldest = next(iter(self._holders or self._waiting), None)
        if oldest in self._waiting:
            self._admit(oldest)
        while self._waiting:
            memory, (size, _) = next(iter(self._waiting.items()))
            if not self._fits(size):
                return
            self._admit(memory)

    def _admit(self, memory: "BodyMemory") -> None:
        size, held = self._waiting.pop(memory)
        if not held.done():
            self._hold(memory, size)
            held.set_result(None)


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
        self.budget.remove(self)
