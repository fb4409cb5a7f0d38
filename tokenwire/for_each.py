"""Iteration in which one item's error does not stop the others, and which does not block the event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_TURN = 64


def log_error(item: object, error: Exception) -> None:
    """Log the error of one item."""
    log.error("%s failed", item, exc_info=error)


def for_each(
    items: Iterable[T], act: Callable[[T], object], on_error: Callable[[T, Exception], object] = log_error
) -> None:
    """Call `act` with each of the current items, and `on_error` with those that raise; its own errors are logged."""
    for item in tuple(items):
        try:
            act(item)
        except Exception as error:
            try:
                on_error(item, error)
            except Exception as another:
                log_error(item, another)


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, yielding to the event loop every 64 of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _TURN == 0:
            await asyncio.sleep(0)
