"""Limits the memory of requests while they are received: heads, small bodies, and requests that wait for a reply."""

import math
from typing import Protocol


class Receiver(Protocol):
    """A connection that receives a request."""

    def give_up(self) -> None:
        """End the connection, so that it takes nothing any more."""


class ReceivingMemory:
    """What all connections of a process take for requests that are not complete.

    Beyond the limit the oldest are given up. Most requests are complete within milliseconds, so those are of clients
    that send slowly, or not at all.
    """

    def __init__(self, limit_bytes: float = math.inf) -> None:
        self.held_bytes = 0
        self.limit_bytes = limit_bytes
        self._receivers: dict[Receiver, int] = {}
        """In the order in which their requests began; without those that hold nothing."""

    def hold(self, receiver: Receiver, size: int) -> None:
        """Set what a connection holds; give up the oldest ones beyond the limit."""
        self.held_bytes += size - self._receivers.get(receiver, 0)
        if size:
            self._receivers[receiver] = size
        else:
            self._receivers.pop(receiver, None)
        while self.held_bytes > self.limit_bytes:
            oldest = next(iter(self._receivers))
            self.hold(oldest, 0)
            oldest.give_up()
