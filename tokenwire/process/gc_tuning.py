"""Avoids garbage collections that would pause every stream without finding garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze_heap() -> None:
    """Collect garbage of the start, and exclude the rest from later collections; call once the process is ready."""
    gc.collect()
    gc.freeze()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection while many objects without cycles are created, which it would scan repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
