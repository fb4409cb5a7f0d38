"""Counts the turns that others have while something long is done on the event loop."""

import asyncio


class TurnsOfOthers:
    """Takes each turn of the running event loop from now on, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._take()

    def _take(self) -> None:
        self.count += 1
        self._loop.call_soon(self._take)
