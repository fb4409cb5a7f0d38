"""Walks over many of which one may fail: what one raises ends no walk over the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


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
