"""Loaded into the engine's processes: says what torch has compiled there."""

from torch._dynamo.utils import counters


class Compilations:
    """A worker extension."""

    def compilations(self) -> int:
        """Count the graphs that were compiled."""
        return int(counters["stats"]["unique_graphs"])
