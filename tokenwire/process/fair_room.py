"""How much of a memory that clients share one of them may take, so that there is always room for who has none."""

TIMES_FREE = 3
"""One client may have so many times what it leaves free: three quarters, or with a second one that also takes what it
can three sevenths."""


def leaves_room(own: int, more: int, free: int, times_free: int = TIMES_FREE) -> bool:
    """Return whether a client that has so much, and takes more of what is free, leaves others room."""
    return own + more <= times_free * (free - more)
