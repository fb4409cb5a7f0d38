"""Times and finishes of a reply for metrics and logs, recorded a few times per reply and never per token."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tokenwire.coordinator.types import Finish
from tokenwire.errors import TokenwireError


@dataclass(slots=True)
class Progress:
    """Progress and outcome of a reply."""

    cached_tokens: list[int]
    """Cached prompt tokens of each choice."""
    clock: Callable[[], float] = time.monotonic
    finishes: list[Finish] = field(default_factory=list)
    """Finishes of the choices that have ended."""
    first_at: float | None = None
    """Time of the first token of any choice."""
    last_at: float | None = None
    """Time of the latest finish."""
    failure: TokenwireError | None = None

    def on_first_tokens(self) -> None:
        """Record the first tokens of a choice."""
        if self.first_at is None:
            self.first_at = self.clock()

    def on_finish(self, finish: Finish) -> None:
        """Record that a choice has ended."""
        self.last_at = self.clock()
        self.finishes.append(finish)
