"""Divides items into batches by their sizes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches_by_size(items: Iterable[T], size_of: Callable[[T], int], enough: int) -> Iterator[list[T]]:
    """Yield items in order, in lists that end with the item that makes them large enough; the last one may not be."""
    batch, size = list[T](), 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= enough:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
