"""Loaded into the engine's processes: says what torch has compiled there."""

from torch._dynamo.utils import counters

from tokenwire.worker.vllm_engine.extension import WorkerExtension


class Compilations(WorkerExtension):
    """The worker extension, and what a test asks."""

    def compilations(self) -> int:
        """Count the graphs that were compiled."""
        return int(counters["stats"]["unique_graphs"])
