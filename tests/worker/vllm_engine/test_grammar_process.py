"""A process that compiles on trial, with one that only pretends to: a grammar says what it does."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from tokenwire.errors import EngineFailed
from tokenwire.worker.vllm_engine.grammar_process import GrammarProcess

COMPILER = """
import json, os, sys, time
assert sys.stdin.readline() == "vocabulary\\n"
print("done", flush=True)
for line in sys.stdin:
    kind, grammar, cpu_s = json.loads(line)
    if grammar == "slow":
        time.sleep(600)
    if grammar == "deadly":
        os._exit(1)
    print("done", flush=True)
"""
LONG_S, SHORT_S = 120.0, 0.1


@pytest.fixture
async def process() -> AsyncIterator[GrammarProcess]:
    """A process that has not been started."""
    fresh = GrammarProcess(lambda: "vocabulary", (sys.executable, "-c", COMPILER))
    yield fresh
    await fresh.close()


async def test_what_compiles_in_time_is_accepted(process: GrammarProcess) -> None:
    """By one process, which is started once."""
    assert await process.compiles_within(LONG_S, "JSON", "quick\n{}")
    first = process._process._process
    assert await process.compiles_within(LONG_S, "JSON", "quick")
    assert process._process._process is first is not None


@pytest.mark.parametrize("grammar", ["slow", "deadly"])
async def test_what_takes_too_long_or_kills_is_rejected(process: GrammarProcess, grammar: str) -> None:
    """The process is killed, and the next grammar gets another one."""
    assert await process.compiles_within(LONG_S, "JSON", "quick")
    first = process._process._process
    assert not await process.compiles_within(SHORT_S if grammar == "slow" else LONG_S, "JSON", grammar)

    assert await process.compiles_within(LONG_S, "JSON", "quick")
    assert first is not None
    assert first.returncode


async def test_an_abandoned_grammar_does_not_block_the_next(process: GrammarProcess) -> None:
    """Its client has left, or the worker stops."""
    assert await process.compiles_within(LONG_S, "JSON", "quick")
    slow = asyncio.create_task(process.compiles_within(LONG_S, "JSON", "slow"))
    await asyncio.sleep(0)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow

    assert await process.compiles_within(LONG_S, "JSON", "quick")


async def test_a_process_that_does_not_start_is_an_error() -> None:
    """Of the engine, not of the grammar. It is tried again with the next one."""
    process = GrammarProcess(lambda: "another vocabulary", (sys.executable, "-c", COMPILER))
    for _ in range(2):
        with pytest.raises(EngineFailed, match="did not start"):
            await process.compiles_within(LONG_S, "JSON", "quick")
        assert not process._process.is_running


async def test_an_unexpected_answer_ends_the_process() -> None:
    """What is read after it would be the answer to an earlier grammar."""
    chatter = COMPILER.replace('print("done", flush=True)', 'print("chatter", "done", sep=chr(10), flush=True)', 1)
    process = GrammarProcess(lambda: "vocabulary", (sys.executable, "-c", chatter))
    with pytest.raises(EngineFailed, match="did not start"):
        await process.compiles_within(LONG_S, "JSON", "quick")
    assert not process._process.is_running
