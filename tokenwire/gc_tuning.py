"""Keeps garbage collections from pausing every stream where there is no garbage to be found."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze_heap() -> None:
    """Collect what the start left behind, and never look at the rest again. For whole processes that are ready."""
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects at once, none of them in a circle: looking at all of them again and again takes far longer."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
