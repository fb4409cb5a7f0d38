"""Long work is done in a thread, and short work is not."""

import asyncio
import threading

import pytest

from tokenwire.coordinator.api.aside import INLINE_TOKENS, aside, each_aside


def refuse_to_parse() -> None:
    """Fail."""
    raise ValueError("no")


async def test_work_on_many_tokens_is_done_in_a_thread() -> None:
    """That on a few is done here, since a thread would cost more."""
    here = threading.get_ident()

    assert await aside(INLINE_TOKENS, threading.get_ident) == here
    assert await aside(INLINE_TOKENS + 1, threading.get_ident) != here


@pytest.mark.parametrize("tokens", [1, INLINE_TOKENS + 1])
async def test_its_error_is_raised(tokens: int) -> None:
    """Wherever it was done."""
    with pytest.raises(ValueError, match="no"):
        await aside(tokens, refuse_to_parse)


async def test_work_on_each_of_many_keeps_their_order() -> None:
    """Whatever parts it is done in."""
    many = [*range(3 * INLINE_TOKENS)]

    assert await each_aside(many, lambda number: number, str) == [str(number) for number in many]
    assert await each_aside([], len, len) == []


async def test_work_on_each_of_many_ends_when_it_is_cancelled() -> None:
    """After the part that is being worked on."""
    loop, began, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        loop.call_soon_threadsafe(began.set)
        may_end.wait()
        done.append(number)

    working = asyncio.create_task(each_aside([*range(9)], lambda _: 10**6, work))
    await began.wait()
    working.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert done == [0]
