"""Limits the cost of a rendering: a deadline, and a number of characters, with errors for the client."""

from dataclasses import dataclass, field
from time import monotonic

from jinja2 import TemplateError


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Limits of one rendering, far beyond the needs of any prompt."""

    seconds: float = 10.0
    characters: int = 100_000_000
    """Characters, list items and the like, of all values that the template creates."""


@dataclass(slots=True)
class Budget:
    """The budget of one rendering. Hot paths use the attributes directly."""

    limits: RenderLimits
    spent: int = 0
    """Characters so far."""
    began_at: float = field(default_factory=monotonic)

    def charge(self, size: int) -> None:
        """Charge for a value before it is created. Raises TemplateError if the budget is exceeded."""
        self.spent += size
        if self.spent > self.limits.characters:
            raise TemplateError(f"The chat template created more than {self.limits.characters} characters.")

    def tick(self) -> None:
        """Check the deadline. Raises TemplateError if it has passed."""
        if monotonic() > self.began_at + self.limits.seconds:
            raise TemplateError(f"The chat template took longer than {self.limits.seconds:g} seconds.")
