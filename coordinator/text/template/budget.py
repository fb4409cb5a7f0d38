"""What a template may cost: a deadline, and how many characters it may make. Both end it with words for the client."""

from dataclasses import dataclass
from time import monotonic

from jinja2 import TemplateError


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds of one rendering, far beyond what any prompt takes."""

    seconds: float = 10.0
    made: int = 100_000_000
    """Characters, list items and the like, of all values that the template makes on its way."""


@dataclass(slots=True)
class Budget:
    """What is left to one rendering. The attributes are for those that count more cheaply than by a call."""

    limits: RenderLimits
    deadline: float
    left: int

    def charge(self, size: int) -> None:
        """Pay for something before it is made. Raises TemplateError when that is more than is left."""
        self.left -= size
        if self.left < 0:
            raise TemplateError(f"The chat template made more than {self.limits.made} characters.")

    def tick(self) -> None:
        """Note that the template still runs. Raises TemplateError beyond the deadline."""
        if monotonic() > self.deadline:
            raise TemplateError(f"The chat template took longer than {self.limits.seconds:g} seconds.")
