"""The pace of a coordinator that is behind its load: in virtual time, dispatching frames takes none."""

import asyncio

from tests.simulation.world import NODE
from tokenwire.coordinator.fleet.transport import paced
from tokenwire.v1 import inference_pb2 as pb

_REFUSED = "merge refused: "
MERGE_REFUSED_FOR_WEIGHTS = f"{_REFUSED}other weights"
"""The only reason among honest workers: they send nothing to a slot that has ended."""


class SlowPace(paced.FramePace):
    """Lets frames wait for a time after each dispatch."""

    def __init__(self, took_s: float) -> None:
        super().__init__()
        self._took_s = took_s
        self._until = 0.0

    def wait_s(self) -> float:
        """Return how much of that time is left."""
        return self._until - asyncio.get_running_loop().time()

    def begin(self) -> None:
        """Begin to wait."""
        self._until = asyncio.get_running_loop().time() + self._took_s


class _CountedMerge(paced._MergedFrame):
    """Counts the frames that are not merged, by reason."""

    def takes(self, frame: pb.StepFrame) -> bool:
        """Return whether a frame may be merged."""
        if super().takes(frame):
            return True
        differs = frame.weight_version != self._frames[0].weight_version
        NODE.get().world.reached[MERGE_REFUSED_FOR_WEIGHTS if differs else f"{_REFUSED}against the protocol"] += 1
        return False


vars(paced)["_MergedFrame"] = _CountedMerge
