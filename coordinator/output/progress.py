"""What a reply notes of itself for whoever counts: a few times in a reply's life, never for each token."""

import time
from collections.abc import Callable

from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError


class Progress:
    """How far a reply has come, and how it ended."""

    __slots__ = ("_clock", "cached_tokens", "failure", "finishes", "first_at", "last_at")

    def __init__(self, choices: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cached_tokens = [0] * choices
        """Prompt tokens of each choice that its worker had in its cache."""
        self.finishes: list[Finish] = []
        """Of the choices that have ended."""
        self.first_at: float | None = None
        """When the first token of any choice came."""
        self.last_at: float | None = None
        """When the last choice ended so far."""
        self.failure: TokenwireError | None = None

    def begun(self) -> None:
        """Note that the first tokens of a choice are here."""
        if self.first_at is None:
            self.first_at = self._clock()

    def finished(self, finish: Finish) -> None:
        """Note that a choice has ended."""
        self.last_at = self._clock()
        self.finishes.append(finish)
