"""What is held back for readers that are behind: bounded for each of them, and for all together."""

DEFAULT_BACKLOG_BYTES = 512 * 1024 * 1024
_SHARE = 16
"""One reader may make the coordinator hold such a part of what all may."""


class Backpressure:
    """Counts bytes over all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        """What is held now."""
        self._limit_bytes = limit_bytes

    def changed(self, before: int, after: int) -> bool:
        """Count a connection's backlog, which was so long before; returns whether that is still bearable."""
        self.held_bytes += after - before
        return after <= before or (after <= self._limit_bytes // _SHARE and self.held_bytes <= self._limit_bytes)
