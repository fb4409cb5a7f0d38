"""Iteration in which one item's error does not stop the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar, TypeVarTuple

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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


def call_each(callbacks: Iterable[Callable[[*Ts], object]], *arguments: *Ts) -> None:
    """Call each of the current callbacks with the same arguments; errors are logged."""
    for callback in tuple(callbacks):
        try:
            callback(*arguments)
        except Exception as error:
            log_error(callback, error)
