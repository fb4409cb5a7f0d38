"""The label of a worker's weights as its frames name it, and how often it changes: each reply has every change."""

import time
from collections.abc import Callable

from tokenwire.coordinator.fleet.announcement_limits import check_label
from tokenwire.errors import ProtocolError

MOST_CHANGES_AT_ONCE = 64
_CHANGES_PER_S = 2
"""As often as weights can be changed, and more."""


class WeightLabels:
    """The current label of one worker's weights."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.current = ""
        self._clock = clock
        self._due = 0.0
        """Changes of late."""
        self._at = 0.0

    def begin(self, label: str) -> None:
        """Take the label of a welcome, which is checked."""
        self.current = label

    def change(self, label: str) -> None:
        """Take another label. Raises ProtocolError if it is none, or if there were too many of late."""
        check_label(label)
        now = self._clock()
        self._due = max(0.0, self._due - (now - self._at) * _CHANGES_PER_S) + 1
        self._at = now
        if self._due > MOST_CHANGES_AT_ONCE:
            raise ProtocolError(f"the worker changed the label of its weights {MOST_CHANGES_AT_ONCE} times at once")
        self.current = label
