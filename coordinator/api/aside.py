"""Does long work on tokens in a thread, so that it holds up the event loop for milliseconds at a time only."""

from collections.abc import Callable
from typing import TypeVar

from tokenwire.coordinator.text.tokenizer import INLINE_CHARS
from tokenwire.process.threads import in_thread

T = TypeVar("T")

INLINE_TOKENS = INLINE_CHARS // 8
"""Up to this many tokens, work on them takes a few milliseconds, and a thread would only add to that."""


async def aside(tokens: int, work: Callable[[], T], inline: int = INLINE_TOKENS) -> T:
    """Return what work on so many tokens returns, done in a thread if they are more than inline.

    Raises what it raises.
    """
    return work() if tokens <= inline else await in_thread(work)
