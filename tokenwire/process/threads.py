"""Threads that compute beside an event loop: how soon they give way, and work that is done to its end."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

ThreadArguments = ParamSpec("ThreadArguments")
ThreadResult = TypeVar("ThreadResult")

_TURN_S = 0.001


def take_short_turns() -> None:
    """Let a thread that computes give way five times as soon as by default: an event loop asks several times a step."""
    sys.setswitchinterval(_TURN_S)


async def in_thread(
    work: Callable[ThreadArguments, ThreadResult], *args: ThreadArguments.args, **kwargs: ThreadArguments.kwargs
) -> ThreadResult:
    """Return what work returns, done in a thread. Raises what it raises.

    A thread cannot be stopped: a cancellation is let through when the work has ended, so that its turn, and the memory
    that is counted for it, are not given away before.
    """
    working = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
    finally:
        del working  # its error refers to this frame, and with it to what was given
