"""Blocking work runs in a daemon thread, and its result is not lost."""

import asyncio
import threading

import pytest

from tokenwire.worker.vllm_engine.background import Background


async def test_the_result_is_awaited() -> None:
    """The function runs in a daemon thread, which does not keep the process alive."""
    thread = await Background(threading.current_thread).result()

    assert thread.daemon
    assert thread is not threading.current_thread()


async def test_an_exception_is_raised_where_the_result_is_awaited() -> None:
    """Whatever it derives from."""

    class Exit(BaseException):
        """Is no Exception."""

    def work() -> None:
        raise Exit

    with pytest.raises(Exit):
        await asyncio.wait_for(Background(work).result(), 10)


async def test_a_result_that_nobody_awaits_any_more_is_discarded() -> None:
    """An engine that was started during a shutdown has to be stopped."""
    may_end, discarded = threading.Event(), threading.Event()
    seen: list[str] = []

    def work() -> str:
        may_end.wait(10)
        return "engine"

    def discard(result: str) -> None:
        seen.append(result)
        discarded.set()

    background = Background(work, discard)
    waiting = asyncio.create_task(background.result())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert background.is_running
    may_end.set()
    assert await asyncio.to_thread(discarded.wait, 10)
    assert seen == ["engine"]
