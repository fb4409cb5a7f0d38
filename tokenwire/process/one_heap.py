"""Keeps what threads allocate in one heap: glibc gives each thread one of its own, which keeps what it once needed."""

import ctypes

_M_ARENA_MAX = -8


def use_one_heap() -> bool:
    """Let glibc make no further heaps; call before the first thread starts. Return whether that is possible here."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1))
    except (OSError, AttributeError):  # another C library
        return False
