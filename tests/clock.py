"""A clock for tests."""


class Clock:
    """Time that passes when told to."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Tell the time."""
        return self.now
