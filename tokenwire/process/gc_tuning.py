"""Avoids garbage collections that would pause every stream without finding garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 50_000


def freeze_heap() -> None:
    """Collect garbage of the start, and exclude the rest from later collections; call once the process is ready."""
    gc.collect()
    gc.freeze()


def collect_rarely() -> None:
    """Collect only when many more objects than requests in flight have are new: what ends leaves no cycles."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


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
