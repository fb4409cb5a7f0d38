"""Limits the cost of a rendering: a deadline, and a number of characters, with errors for the client.

On the event loop few messages are rendered, by a template that is not slow even with such: it may be a worker's, who
decides what it does with which messages.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from jinja2 import TemplateError


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Limits of one rendering, far beyond the needs of any prompt."""

    seconds: float = 10.0
    characters: int = 100_000_000
    """Characters, list items and the like, of all values that the template creates."""


class LimitExceeded(TemplateError):
    """A rendering takes more than it may."""


class DeadlinePassed(LimitExceeded):
    """A rendering takes longer than it may, or its process was stopped meanwhile."""


@dataclass(slots=True)
class Budget:
    """The budget of one rendering. Hot paths use the attributes directly."""

    limits: RenderLimits
    spent: int = 0
    """Characters so far."""
    began_at: float = field(default_factory=monotonic)

    def charge(self, size: int) -> None:
        """Charge for a value before it is created. Raises LimitExceeded."""
        self.spent += size
        if self.spent > self.limits.characters:
            raise LimitExceeded(f"The chat template created more than {self.limits.characters} characters.")

    def tick(self) -> None:
        """Check the deadline. Raises DeadlinePassed."""
        if monotonic() > self.began_at + self.limits.seconds:
            raise DeadlinePassed(f"The chat template took longer than {self.limits.seconds:g} seconds.")


INLINE = RenderLimits(seconds=0.05, characters=1_000_000)
"""Of a rendering on the event loop."""
_SLOW_S = 600.0
"""So long a template that took more renders in threads only."""


class TemplatePace:
    """Whether a template may render on the event loop."""

    def __init__(self) -> None:
        self.quick_from = math.inf
        """When it may, in the loop's time; at first, it is not known whether it is quick."""

    def on_rendered(self, took_s: float, again: bool = False) -> None:
        """Update from the CPU time that few messages took in a thread; `again`: after their deadline had passed.

        If they are not slow there, the process had been stopped: other programs run on its cores, too.
        """
        if took_s < INLINE.seconds and (again or self.quick_from == math.inf):
            self.quick_from = -math.inf

    def on_slow(self, now: float, error: LimitExceeded) -> bool:
        """Update from a rendering on the event loop that took more than it may there; return whether by its time."""
        self.quick_from = now + _SLOW_S
        return isinstance(error, DeadlinePassed)


def timed(work: Callable[[], str]) -> tuple[str, float]:
    """Return what some work renders, and the CPU time of this thread that it took."""
    began_at = time.thread_time()
    text = work()
    return text, time.thread_time() - began_at
