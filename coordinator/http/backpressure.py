"""Limits the data buffered of bodies whose requests are not submitted yet."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from tokenwire.errors import Unavailable, mib
from tokenwire.options import Bounds, Option, Unit, check_bounds, option
from tokenwire.process.fair_turns import FairTurns

T = TypeVar("T")

SMALL_BYTES = 64 * 1024
"""What smaller bodies take is bounded by their turns and the number of connections."""
_LATER_SHARE = 0.5
"""All bodies but the oldest may take this fraction: the oldest may always take more, and they leave it room."""
_OF_ONE = 0.75  # of that, which one client may take
_TIMES_HELD = 3  # as often a string counts: growing a body may copy it, and then it is parsed
_PATIENCE_S = 5.0
_GRACE_S = 1.0  # after which room is made for a client that has less than others
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
            "Maximum memory of all bodies of more than 64 KiB, read and parsed, until their requests are submitted; "
            "of pictures, until they are loaded. Beyond it reading pauses; all but the oldest one that is still read "
            "take half of it at most, those of one client three eighths. Who waits for longer than 5 s gets a 503; "
            "after 1 s, the newest body that is still received of the client with most, if that has more. Requests "
            "being received may take as much for heads and smaller bodies; beyond it the oldest get a 503.",
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)


_MEDIUM_PATIENCE_S = 0.25
_PLACES, _SHARE_OF_PLACES = 3, 2
_HUGE_BYTES = 2**20
"""Larger ones are prepared one at a time: their prompts take many times as much as their text."""


class BodyBudget:
    """The memory of all bodies together, read and parsed, until their requests are submitted or answered."""

    def __init__(
        self, settings: BodySettings | None = None, patience_s: float = _PATIENCE_S, grace_s: float = _GRACE_S
    ) -> None:
        """`settings`: None for no limits. patience_s: the longest pause of reading a body, and turn. grace_s: after
        which others make room for it.
        """
        self.max_body_bytes = None if settings is None else settings.max_body_bytes
        self.held_bytes = 0
        self._limit_bytes = math.inf if settings is None else settings.max_bodies_bytes
        self.patience_s = patience_s
        self._grace_s = grace_s
        self._reading: dict[BodyMemory, None] = {}
        """What holds some and is not read yet, in order of arrival."""
        self._waiting: dict[BodyMemory, tuple[int, asyncio.Future[None]]] = {}
        """With how much they wait for, in order of arrival here."""
        self._turns = asyncio.Lock()
        self._of_share: Counter[str] = Counter()
        """What each client holds."""
        self._medium, self._large = (FairTurns(_PLACES, _SHARE_OF_PLACES) for _ in range(2))
        self._huge = FairTurns(1, 1)

    def turns_of(self, size: int) -> FairTurns:
        """Return the turns that a request with a body of this size waits for, to be prepared."""
        if size <= SMALL_BYTES:
            return self._medium
        return self._huge if size > _HUGE_BYTES else self._large

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Give large bodies that are parsed one turn of the event loop each, so that others have theirs in between."""
        async with self._turns:
            await asyncio.sleep(0)
            yield

    async def give_way(self) -> None:
        """Wait for a turn, and leave the next one to the next large body: what is done now ends before it begins."""
        async with self.turn():
            pass

    async def add(self, memory: "BodyMemory", size: int) -> None:
        """Add to what a body takes as soon as there is space. Raises Unavailable."""
        if self._may_hold(memory, size):
            self._hold(memory, size)
            return
        loop = asyncio.get_running_loop()
        held = loop.create_future()
        self._waiting[memory] = size, held
        self._let_in()  # it goes before those of clients that hold more
        grace = loop.call_later(self._grace_s, self._make_room, memory, size)
        try:
            async with asyncio.timeout(self.patience_s):
                await held
        except TimeoutError:
            raise self.refusal(memory, size) from None
        finally:
            grace.cancel()
            if self._waiting.pop(memory, None) is not None:
                self._let_in()

    def refusal(self, memory: "BodyMemory", size: int = 0) -> Unavailable:
        """Return the error for a body that gets no more memory."""
        message = (
            f"This server reads other large requests: the body of this one takes {mib(memory.held_bytes + size)} so "
            f"far, and all may take {mib(self._limit_bytes)} together, read and parsed (--max-bodies-mb). Try again."
        )
        return Unavailable(message, retry_after_s=_RETRY_AFTER_S)

    def remove(self, memory: "BodyMemory", size: int | None = None) -> None:
        """Remove what a body takes, or so much of it if it takes more than that."""
        if size is None:
            self._reading.pop(memory, None)
            size = memory.held_bytes
        elif size >= memory.held_bytes:
            return
        self.held_bytes -= size
        self._of_share[memory.share] -= size
        if not self._of_share[memory.share]:
            del self._of_share[memory.share]
        memory.held_bytes -= size
        if size:
            self._let_in()

    def pass_on(self, memory: "BodyMemory") -> None:
        """Let the next body be the oldest: this one is read."""
        memory.is_read = True
        if self._reading.pop(memory, memory) is None:
            self._let_in()

    def _may_hold(self, memory: "BodyMemory", size: int) -> bool:
        # The oldest always may: it ends, and makes room for the others. Bodies that all wait for the rest never would.
        if memory is next(iter(self._reading), memory):
            return True
        waits = any(self._is_within_share(other, wanted) for other, (wanted, _) in self._waiting.items())
        return not waits and self._fits(size) and self._is_within_share(memory, size)

    def _fits(self, size: int) -> bool:
        """Return whether a body that is not the oldest may take more."""
        later_bytes = self.held_bytes - next((each.held_bytes for each in self._reading), 0)
        return self.held_bytes + size <= self._limit_bytes and later_bytes + size <= _LATER_SHARE * self._limit_bytes

    def _is_within_share(self, memory: "BodyMemory", size: int) -> bool:
        """Return whether it leaves room for those of others, besides the oldest. Who is not known has no share."""
        if not memory.share:
            return True
        oldest = next(iter(self._reading), memory)
        own = self._of_share[memory.share] - (oldest.held_bytes if oldest.share == memory.share else 0)
        return own + size <= _OF_ONE * _LATER_SHARE * self._limit_bytes

    def _make_room(self, memory: "BodyMemory", size: int) -> None:
        """Refuse the newest bodies of clients that hold more than this one would: as few as it needs, or none."""
        sizes, refused = Counter(self._of_share), list[BodyMemory]()
        own, room = sizes[memory.share] + size, 0
        later = list(self._reading)[1:]
        while not self._fits(size - room):
            larger = [each for each in later if each.is_received and sizes[each.share] > own and each not in refused]
            if not memory.share or not larger:
                return
            refused.append(max(reversed(larger), key=lambda each: sizes[each.share]))
            room += refused[-1].held_bytes
            sizes[refused[-1].share] -= refused[-1].held_bytes
        for each in refused:
            self._refuse(each)

    def _refuse(self, memory: "BodyMemory") -> None:
        if memory in self._waiting:
            size, held = self._waiting.pop(memory)
            held.set_exception(self.refusal(memory, size))
        else:
            memory.stop_receiving()

    def _hold(self, memory: "BodyMemory", size: int) -> None:
        if not memory.is_read:
            self._reading[memory] = None
        self._of_share[memory.share] += size
        self.held_bytes += size
        memory.held_bytes += size

    def _let_in(self) -> None:
        """Let those in that may hold more now: the oldest, then those of clients that hold least, in order."""
        oldest = next(iter(self._reading or self._waiting), None)
        if oldest in self._waiting:
            self._admit(oldest)
        for memory in sorted(self._waiting, key=lambda each: self._of_share[each.share]):
            size, _ = self._waiting[memory]
            if not self._is_within_share(memory, size):
                continue
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
    share: str = ""
    """Whom a share of the budget is for, which is never changed while it holds something."""
    _receiving: asyncio.Timeout | None = None
    is_read: bool = False
    """Whether all of the body has been read: it leaves the place of the oldest to others."""
    is_kept: bool = False
    """Whether something keeps all of the body until its request is submitted."""
    turns: FairTurns | None = None
    """In which others wait until this request is prepared."""
    _turn_end: asyncio.TimerHandle | None = None
    _turn_size: int = 0

    async def add(self, size: int) -> None:
        """Add bytes; wait while others take the whole budget. Raises Unavailable if that takes too long."""
        await self.budget.add(self, size)

    async def receive(self, receive: Callable[[], Awaitable[T]]) -> T:
        """Receive a further piece. Raises Unavailable if others need what it has taken so far."""
        if not self.held_bytes:
            return await receive()
        try:
            async with asyncio.timeout(None) as self._receiving:
                return await receive()
        except TimeoutError:
            raise self.budget.refusal(self) from None
        finally:
            self._receiving = None

    @property
    def is_received(self) -> bool:
        """Whether it waits for more of the body, or for memory."""
        return self._receiving is not None or self in self.budget._waiting

    def stop_receiving(self) -> None:
        """Let `receive` raise."""
        if self._receiving is not None:
            self._receiving.reschedule(asyncio.get_running_loop().time())

    async def begin_turn(self, size: int) -> None:
        """Wait for the turn of a request with a body of this size; have it until `end_turn`, or for some time.

        A request that takes longer waits for something itself, such as a model whose first worker starts.
        """
        turns = self.budget.turns_of(size)
        await turns.begin(self.share)
        self.turns, self._turn_size = turns, size
        patience_s = _MEDIUM_PATIENCE_S if size <= SMALL_BYTES else self.budget.patience_s
        self._turn_end = asyncio.get_running_loop().call_later(patience_s, self.end_turn)

    def end_turn(self) -> None:
        """Let others have their turn: this request is prepared. Safe more than once."""
        turns, self.turns = self.turns, None
        if turns is not None and self._turn_end is not None:
            self._turn_end.cancel()
            turns.end(self.share)
            self.budget.pass_on(self)

    @asynccontextmanager
    async def out_of_turn(self) -> AsyncIterator[None]:
        """Let others have their turns while this request waits for something else; then wait for its own again."""
        had_turn = self.turns is not None
        self.end_turn()
        yield
        if had_turn:
            await self.begin_turn(self._turn_size)

    def on_taken(self, text_bytes: int) -> None:
        """Give back what strings of the body took that nothing has any more: as they were read, and parsed."""
        self.budget.remove(self, _TIMES_HELD * text_bytes)

    def release(self) -> None:
        """Give everything back. Safe more than once."""
        if self.turns is not None:
            self.end_turn()
        if self.held_bytes:
            self.budget.remove(self)
