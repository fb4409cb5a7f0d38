"""A worker whose load is set by a test."""

from dataclasses import dataclass, field

from tests.clock import Clock
from tokenwire.coordinator.fleet.slots import DiscardListener, SlotTable
from tokenwire.coordinator.fleet.workload import Workload
from tokenwire.v1 import inference_pb2 as pb


@dataclass
class LoadedWorker:
    """A worker whose load is set by a test."""

    address: str
    instance_id: str = ""
    clock: Clock = field(default_factory=Clock)
    slots: SlotTable = field(default_factory=SlotTable)

    def __post_init__(self) -> None:
        self.instance_id = self.instance_id or f"instance of {self.address}"
        self.workload = Workload(self.slots, self.clock)
        self.workload.begin(256, pb.Load())

    def take(self, sequences: int = 1, prompt: int = 0) -> None:
        """Submit a request."""
        slots = [self.slots.take(DiscardListener()) for _ in range(sequences)]
        self.workload.on_submit(slots, prompt)

    def report(self, **load: float) -> None:
        """Send a frame without tokens."""
        self.workload.on_frame(pb.StepFrame(load=pb.Load(**load)))  # type: ignore[arg-type]
