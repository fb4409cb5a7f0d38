"""Does long work on tokens in a thread, so that it holds up the event loop for milliseconds at a time only."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tokenwire.coordinator.text.tokenizer import INLINE_CHARS
from tokenwire.process.threads import in_thread

T = TypeVar("T")
Item = TypeVar("Item")

INLINE_TOKENS = INLINE_CHARS // 8
"""Up to this many tokens, work on them takes a few milliseconds, and a thread would only add to that."""
_PART_TOKENS = 4096
"""Of what is worked on until a cancellation is seen."""


async def aside(tokens: int, work: Callable[[], T], inline: int = INLINE_TOKENS) -> T:
    """Return what work on so many tokens returns, done in a thread if they are more than inline.

    Raises what it raises.
    """
    return work() if tokens <= inline else await in_thread(work)


async def each_aside(
    items: Sequence[Item], tokens_of: Callable[[Item], int], work: Callable[[Item], T], inline: int = INLINE_TOKENS
) -> list[T]:
    """Return what work on each item returns, done like that in parts, so that it can be cancelled between two of them.

    Raises what it raises.
    """
    results: list[T] = []
    part: list[Item] = []
    tokens = 0
    for number, item in enumerate(items, start=1):
        part.append(item)
        tokens += tokens_of(item)
        if tokens >= _PART_TOKENS or number == len(items):
            results += await aside(tokens, partial(_on_each, work, part), inline)
            part, tokens = [], 0
    return results


def _on_each(work: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
    return [work(item) for item in items]
