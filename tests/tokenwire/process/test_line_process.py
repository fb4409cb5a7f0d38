"""A process that answers lines: what comes of it when it is late, ends, or had ended before it was asked."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from tokenwire.process.line_process import LineProcess

ECHO = """
import os, sys, time
for line in sys.stdin:
    if line.strip() == "sleep":
        time.sleep(600)
    if line.strip() == "half":
        os.write(1, b"no newline")
        os._exit(1)
    print(os.getpid(), line, end="", flush=True)
"""


@pytest.fixture
async def process() -> AsyncIterator[LineProcess]:
    """A process that repeats lines after its number."""
    echo = LineProcess((sys.executable, "-c", ECHO))
    await echo.start()
    yield echo
    await echo.close()


async def test_a_line_is_answered(process: LineProcess) -> None:
    """By the same process each time."""
    first, second = await process.ask("a"), await process.ask("b")

    assert first.split()[1:] == [b"a"]
    assert second == first.replace(b"a", b"b")


@pytest.mark.parametrize(("line", "limit_s"), [("sleep", 0.1), ("half", None)])
async def test_no_answer_in_time_ends_the_process(process: LineProcess, line: str, limit_s: float | None) -> None:
    """So does half of one. It can be started again."""
    assert await process.ask(line, limit_s) == b""
    assert not process.is_running

    await process.start()
    assert (await process.ask("a")).endswith(b" a\n")


async def test_a_process_that_has_ended_is_not_running(process: LineProcess, caplog: pytest.LogCaptureFixture) -> None:
    """Asked all the same, it gives no answer; that it ended is logged."""
    number = int((await process.ask("a")).split()[0])
    running = process._process
    assert running is not None
    os.kill(number, signal.SIGKILL)
    await running.wait()

    assert not process.is_running
    assert await process.ask("a") == b""
    assert f"process {number} has ended by itself (exit status -9)" in caplog.text


async def test_a_question_that_is_given_up_ends_the_process(process: LineProcess) -> None:
    """Its answer would be taken for that of the next."""
    asking = asyncio.create_task(process.ask("sleep"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert not process.is_running
