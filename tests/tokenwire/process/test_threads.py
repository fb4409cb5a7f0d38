"""Threads give way soon, and their work ends before those who wait for it do."""

import asyncio
import gc
import sys
import threading
import weakref

import pytest

from tests.workers import until
from tokenwire.errors import InvalidRequest
from tokenwire.process.threads import in_thread, take_short_turns


async def test_work_is_done_in_a_thread() -> None:
    """With its arguments, and its errors."""

    def refuse() -> None:
        raise InvalidRequest("no")

    assert await in_thread(sorted, [1, 3, 2], reverse=True) == [3, 2, 1]
    assert await in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(InvalidRequest, match="no"):
        await in_thread(refuse)


class _Given:
    """What a thread gets."""


async def test_errors_keep_nothing_of_what_was_given() -> None:
    """Without the collector of cycles, which comes much later."""

    def refuse(large: _Given) -> None:
        raise InvalidRequest("no")

    large = _Given()
    alive = weakref.ref(large)
    gc.disable()
    try:
        with pytest.raises(InvalidRequest):
            await in_thread(refuse, large)
        del large
        await until(lambda: alive() is None)  # its thread lets go a moment later
    finally:
        gc.enable()


async def test_who_is_cancelled_waits_for_the_end_of_the_work() -> None:
    """A thread that nobody waits for would take what is counted for nobody."""
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()

    waiting = asyncio.create_task(in_thread(work))
    await until(begun.is_set)
    waiting.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_thread_gives_way_after_a_millisecond() -> None:
    """An event loop waits for it several times a step."""
    before = sys.getswitchinterval()
    try:
        take_short_turns()
        assert sys.getswitchinterval() == 0.001
    finally:
        sys.setswitchinterval(before)
