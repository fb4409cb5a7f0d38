"""Watches whether a worker answers the calls of one method, whoever makes them."""

import math
from collections.abc import Callable

_FORGIVEN_S = 60.0
"""So long after its last call, a worker that did not answer is asked again."""

_SILENT_S = 4.0
"""After so long without an answer to any call, other workers are preferred."""


class CallWatch:
    """Counts calls, and how long they were waited for."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.open = 0
        """Calls that are neither answered nor cancelled."""
        self._begun_at = self._since = -math.inf
        """When the last call was made; since when there have been calls without an answer, if there are some."""
        self._waited_s = 0.0
        """How long calls were waited for before that, since the last answer."""

    @property
    def is_silent(self) -> bool:
        """Whether calls were waited for for a while without an answer, however short each of them was.

        After some time without a call, one may try again.
        """
        now = self._clock()
        waited_s = self._waited_s + (now - self._since if self.open else 0)
        return waited_s > _SILENT_S and now - self._begun_at < _FORGIVEN_S

    def begin(self) -> None:
        """Note that a call is made."""
        self._begun_at = self._clock()
        if not self.open:
            self._since = self._begun_at
        self.open += 1

    def on_answer(self) -> None:
        """Note an answer, be it an error."""
        self._waited_s, self._since = 0.0, self._clock()

    def end(self) -> None:
        """Note that a call has ended, answered or not."""
        self.open -= 1
        if not self.open:
            self._waited_s += self._clock() - self._since
