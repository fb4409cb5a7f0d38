"""Tests of work that several wait for, which comes and goes with those who do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.workers import until
from tokenwire.worker.media.shared_work import Shared, SharedWork


class Work:
    """Pieces of work that wait until they may begin, and then until they may end."""

    def __init__(self) -> None:
        self.shared = SharedWork[str, str]()
        self.calls = 0
        self.left: list[str] = []
        self.may_begin, self.may_end = asyncio.Event(), asyncio.Event()

    def wanted(self, key: str = "key") -> "asyncio.Task[str]":
        """Begin to wait for a piece."""
        return asyncio.create_task(self.shared.result(key, self._of(key)))

    def _of(self, key: str) -> Callable[[Shared[str]], Any]:
        async def work(piece: Shared[str]) -> str:
            self.calls += 1
            try:
                await self.may_begin.wait()
            except asyncio.CancelledError:
                self.left.append(key)
                raise
            piece.begun = True
            await self.may_end.wait()
            return f"made of {key}"

        return work


async def test_those_who_wait_for_the_same_share_the_work() -> None:
    """It is done once, and another key is other work."""
    work = Work()
    waiting = [work.wanted(), work.wanted(), work.wanted("other")]
    await until(lambda: work.calls == 2)
    work.may_begin.set()
    work.may_end.set()
    assert await asyncio.gather(*waiting) == ["made of key", "made of key", "made of other"]
    assert not work.shared.has_begun("key")


async def test_work_that_waits_ends_with_the_last_who_waits_for_it() -> None:
    """While one of them stays, so does the work; who comes after all left gets new work."""
    work = Work()
    first, second = work.wanted(), work.wanted()
    await until(lambda: work.calls == 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not work.left
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    again = work.wanted()
    await until(lambda: work.calls == 2)
    assert work.left == ["key"]
    work.may_begin.set()
    work.may_end.set()
    assert await again == "made of key"


async def test_work_that_has_begun_goes_on_without_anybody() -> None:
    """Who comes meanwhile gets what it makes."""
    work = Work()
    work.may_begin.set()
    first = work.wanted()
    await until(lambda: work.calls == 1)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert work.shared.has_begun("key")
    second = work.wanted()
    work.may_end.set()
    assert await second == "made of key"
    assert work.calls == 1


async def test_an_error_is_that_of_all_who_wait() -> None:
    """And the next one tries again."""
    shared, calls = SharedWork[str, str](), []

    async def fail(piece: Shared[str]) -> str:
        calls.append(piece)
        raise ValueError("broken")

    errors = await asyncio.gather(*(shared.result("key", fail) for _ in range(2)), return_exceptions=True)
    assert [str(each) for each in errors] == ["broken"] * 2
    assert len(calls) == 1
    with pytest.raises(ValueError, match="broken"):
        await shared.result("key", fail)


async def test_all_work_can_be_cancelled() -> None:
    """Those who wait are told, whether it has begun or not."""
    work = Work()
    waiting = work.wanted()
    await until(lambda: work.calls == 1)
    work.shared.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
