"""A clock for tests."""


class Clock:
    """A monotonic clock that a test advances."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now
