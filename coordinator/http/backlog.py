"""Limits what all slow readers have not read: who has most of it gives way."""

from collections import Counter
from typing import Protocol

DEFAULT_BACKLOG_BYTES = 256 * 1024 * 1024
_SHARE = 16
"""One reader may use this fraction of the total limit."""


class Reader(Protocol):
    """A connection with data that its client has not read."""

    share: str
    """Whose share of the limit it takes; one value for all who are not known."""
    held_bytes: int
    """What it takes; set by the backlog alone."""

    def cut(self) -> None:
        """Close it, and hold nothing any longer."""


class Backlog:
    """Counts bytes over all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        """Currently buffered bytes."""
        self._limit_bytes = limit_bytes
        self._shares: dict[Reader, str] = {}
        """Of each connection that holds something, as it was when that began."""
        self._of_share: Counter[str] = Counter()
        """What the connections of each share hold together."""

    def hold(self, reader: Reader, size_bytes: int) -> None:
        """Update a connection's buffered bytes; cut it if these are too many.

        Beyond the total limit cut the largest connections of the share that holds most.
        """
        more = size_bytes - reader.held_bytes
        self._add(reader, more)
        if more > 0:
            if size_bytes > self._limit_bytes // _SHARE:
                reader.cut()
            while self.held_bytes > self._limit_bytes:
                self._largest().cut()

    def _add(self, reader: Reader, more: int) -> None:
        share = self._shares.setdefault(reader, reader.share)
        reader.held_bytes += more
        self.held_bytes += more
        self._of_share[share] += more
        if not reader.held_bytes:
            del self._shares[reader]
            if not self._of_share[share]:
                del self._of_share[share]

    def _largest(self) -> Reader:
        most = max(self._of_share, key=self._of_share.__getitem__)
        return max((each for each, share in self._shares.items() if share == most), key=lambda each: each.held_bytes)
