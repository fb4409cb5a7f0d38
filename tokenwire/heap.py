"""Keeps what a process has loaded at its start out of garbage collections: each would pause every stream for it."""

import gc


def settle_heap() -> None:
    """Collect what the start left behind, and never look at the rest again. For whole processes that are ready."""
    gc.collect()
    gc.freeze()
