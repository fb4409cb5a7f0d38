"""Walks over many: what one raises ends no walk over the others, and a long walk holds up nobody."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_TURN = 64


def log_error(item: object, error: Exception) -> None:
    """Say in the log alone what one of many raised."""
    log.error("%s broke", item, exc_info=error)


def for_each(
    items: Iterable[T], act: Callable[[T], object], on_error: Callable[[T, Exception], object] = log_error
) -> None:
    """Do something with each of what is there now. `on_error` gets what one raised; what that raises is logged."""
    for item in tuple(items):
        try:
            act(item)
        except Exception as error:
            try:
                on_error(item, error)
            except Exception as another:
                log_error(item, another)


async def unhurried(items: Iterable[T]) -> AsyncIterator[T]:
    """Return one after the other, and let everybody else have a turn in between now and then."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _TURN == 0:
            await asyncio.sleep(0)
