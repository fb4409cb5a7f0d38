"""The pace of a coordinator that is behind its load: in virtual time, dispatching frames takes none."""

import asyncio

from tokenwire.coordinator.fleet.transport.paced import FramePace


class SlowPace(FramePace):
    """Lets frames wait for a time after each dispatch."""

    def __init__(self, took_s: float) -> None:
        super().__init__()
        self._took_s = took_s
        self._until = 0.0

    def wait_s(self) -> float:
        """Return how much of that time is left."""
        return self._until - asyncio.get_running_loop().time()

    def begin(self) -> None:
        """Begin to wait."""
        self._until = asyncio.get_running_loop().time() + self._took_s
