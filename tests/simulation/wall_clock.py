"""Wall clocks of machines."""


class WallClock:
    """One that nobody sets right: it is off, runs too fast or too slow, and may be set back."""

    def __init__(self, offset_s: float = 0.0, drift: float = 0.0) -> None:
        """`drift`: seconds that it gains in each."""
        self.offset_s = offset_s
        self._drift = drift

    def read(self, time_s: float) -> float:
        """Return what it shows at a virtual time."""
        return time_s * (1 + self._drift) + self.offset_s
