"""Turns at something slow: who waits for many delays others by one each."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tokenwire.errors import Overloaded
from tokenwire.process.fair_turns import FairTurns


class Queue:
    """Some that want a turn, and the order in which they got it."""

    def __init__(self, turns: FairTurns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, *names: str) -> None:
        """Let tenants wait; the first letter of a name is that of the tenant."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._wait(name))
        await self._settle()

    async def _wait(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.order.append(name)
            await self.ends[name].wait()

    async def end(self, *names: str) -> None:
        """Let those leave, one after the other."""
        for name in names:
            self.ends[name].set()
            await self._settle()

    async def cancel(self, *names: str) -> None:
        """Cancel those."""
        for name in names:
            self.tasks[name].cancel()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)


async def test_tenants_take_turns() -> None:
    """One that waits for many delays another by one of them, also if it came before it."""
    queue = Queue(FairTurns(1, 1))
    await queue.join("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    await queue.end("a1", "b1", "c1", "a2", "b2", "a3", "a4")

    assert queue.order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_a_tenant_has_at_most_its_share() -> None:
    """The other places are for those who come later."""
    queue = Queue(FairTurns(3, 2))
    await queue.join("a1", "a2", "a3", "a4", "b1")
    assert queue.order == ["a1", "a2", "b1"]

    await queue.end("b1")
    assert queue.order == ["a1", "a2", "b1"]
    await queue.end("a2")
    assert queue.order == ["a1", "a2", "b1", "a3"]


async def test_who_is_cancelled_loses_nobody_a_place() -> None:
    """Whether it waits, or has a place."""
    queue = Queue(FairTurns(1, 1))
    await queue.join("a1", "a2", "b1", "b2")
    await queue.cancel("b1", "a1")
    await queue.end("b2")

    assert queue.order == ["a1", "b2", "a2"]
    await queue.end("a2")
    assert not queue.turns._waiting
    assert not queue.turns._taken


async def test_who_gets_a_place_while_it_is_cancelled_gives_it_back() -> None:
    """The next one has it."""
    queue = Queue(FairTurns(1, 1))
    await queue.join("a1", "a2", "a3")
    queue.ends["a1"].set()
    await asyncio.sleep(0)  # now a2 has been given the place and has not run
    await queue.cancel("a2")

    assert queue.order == ["a1", "a3"]


async def test_too_many_of_a_tenant_are_refused() -> None:
    """Others are not."""
    turns = FairTurns(1, 1, most_waiting=2, refusal="Too many of this client wait.")
    queue = Queue(turns)
    await queue.join("a1", "a2", "a3", "b1")

    async with AsyncExitStack() as stack:
        with pytest.raises(Overloaded, match="Too many of this client wait"):
            await stack.enter_async_context(turns.turn("a"))
    await queue.cancel("a3")  # behind one that still waits
    await queue.join("a4")
    await queue.end("a1", "b1", "a2", "a4")
    assert queue.order == ["a1", "b1", "a2", "a4"]
