"""A fleet that takes submissions without workers."""

from collections.abc import Sequence

from tokenwire.coordinator.fleet.request_handle import NEW, Placement
from tokenwire.coordinator.fleet.slots import SlotListener
from tokenwire.errors import Unavailable
from tokenwire.v1 import inference_pb2 as pb


class Part:
    """A submission."""

    def __init__(self, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement) -> None:
        self.submit = submit
        self.placement = placement
        self.listeners = listeners
        self.aborted = False

    def abort(self) -> None:
        """Record the abort."""
        self.aborted = True

    def explain(self) -> str:
        """Return its name."""
        return f"part {self.submit.request_id}"


class FakeFleet:
    """Takes a given number of submits."""

    def __init__(self, capacity: int = 100) -> None:
        self.parts: list[Part] = []
        self._capacity = capacity

    def check_open(self, model: str, adapter_id: int) -> None:
        """Admit everything."""

    def submit(
        self, model: str, submit: pb.Submit, listeners: Sequence[SlotListener], placement: Placement = NEW
    ) -> Part:
        """Take a submit while there is capacity."""
        if len(self.parts) == self._capacity:
            raise Unavailable("no capacity")
        self.parts.append(Part(submit, listeners, placement))
        return self.parts[-1]
