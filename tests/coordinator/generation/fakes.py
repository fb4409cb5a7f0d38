"""A fleet that takes submissions without workers."""

from collections.abc import Sequence

from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.coordinator.fleet.submission import Submission
from tokenwire.errors import Unavailable


class Part:
    """A submission."""

    def __init__(self, submission: Submission, listeners: Sequence[SlotListener], placement: Placement) -> None:
        self.submission = submission
        self.placement = placement
        self.listeners = listeners
        self.aborted = False

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def explain(self) -> str:
        """Return its name."""
        return f"part {self.submission.request_id}"


class FakeFleet:
    """Takes a given number of submissions."""

    def __init__(self, capacity: int = 100) -> None:
        self.parts: list[Part] = []
        self._capacity = capacity

    def check_open(self, model: str, adapter_id: int, placement: Placement = NEW, sequences: int = 1) -> None:
        """Admit everything."""

    def submit(
        self, model: str, submission: Submission, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Part:
        """Take a submission while there is capacity."""
        if len(self.parts) == self._capacity:
            raise Unavailable("no capacity")
        self.parts.append(Part(submission, listeners, placement))
        return self.parts[-1]
