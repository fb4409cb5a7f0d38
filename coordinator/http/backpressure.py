"""Limits the data buffered for slow readers, per connection and in total."""

DEFAULT_BACKLOG_BYTES = 512 * 1024 * 1024
_SHARE = 16
"""One reader may use this fraction of the total limit."""


class Backpressure:
    """Counts bytes over all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        """Currently buffered bytes."""
        self._limit_bytes = limit_bytes

    def changed(self, before: int, after: int) -> bool:
        """Update a connection's buffered bytes; return whether they are within the limits."""
        self.held_bytes += after - before
        return after <= before or (after <= self._limit_bytes // _SHARE and self.held_bytes <= self._limit_bytes)
