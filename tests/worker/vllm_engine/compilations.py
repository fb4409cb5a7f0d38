"""A worker extension for the engine's processes that counts what torch has compiled there."""

from torch._dynamo.utils import counters

from tokenwire.worker.vllm_engine.extension import WorkerExtension


class Compilations(WorkerExtension):
    """The worker extension with a method for tests."""

    def compilations(self) -> int:
        """Return the number of compiled graphs."""
        return int(counters["stats"]["unique_graphs"])
