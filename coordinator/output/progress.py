"""Times and finishes of a reply for metrics and logs, recorded a few times per reply and never per token."""

import time
from collections.abc import Callable

from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError


class Progress:
    """Progress and outcome of a reply."""

    __slots__ = ("_clock", "cached_tokens", "failure", "finishes", "first_at", "last_at")

    def __init__(self, choices: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cached_tokens = [0] * choices
        """Cached prompt tokens of each choice."""
        self.finishes: list[Finish] = []
        """Finishes of the choices that have ended."""
        self.first_at: float | None = None
        """Time of the first token of any choice."""
        self.last_at: float | None = None
        """Time of the latest finish."""
        self.failure: TokenwireError | None = None

    def on_first_tokens(self) -> None:
        """Record the first tokens of a choice."""
        if self.first_at is None:
            self.first_at = self._clock()

    def on_finish(self, finish: Finish) -> None:
        """Record that a choice has ended."""
        self.last_at = self._clock()
        self.finishes.append(finish)
