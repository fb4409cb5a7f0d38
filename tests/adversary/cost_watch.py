"""Watches what a hostile worker costs a coordinator, by the limits that requests have."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType

from benchmarks.processes import Measured
from tests.adversary.runner import MOST_MEMORY_MB, MOST_SILENCE_S, longest_silence

_SAMPLE_S = 0.02


class CostWatch:
    """Notes a coordinator's time on CPUs and its largest memory while a worker attacks it."""

    def __init__(self, coordinator: Measured) -> None:
        self._coordinator = coordinator
        self._samples: list[tuple[float, float]] = []
        self._base_mb = 0.0

    async def __aenter__(self) -> "CostWatch":
        """Begin."""
        self._coordinator.reset_peak()
        self._base_mb = self._coordinator.memory_mb()
        self._sampling = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""
        self._sampling.cancel()
        await asyncio.wait([self._sampling])

    def problems(self, arrivals: Sequence[Sequence[float]]) -> list[str]:
        """Return what streams, by the times at which something came, and the memory suffered beyond the limits."""
        blocked = max(longest_silence(each, self._samples)[1] for each in arrivals)
        memory = self._coordinator.peak_memory_mb() - self._base_mb
        found = [f"a stream was blocked for {blocked:.2f} s"] if blocked > MOST_SILENCE_S else []
        return found + ([f"it took {memory:.0f} MB"] if memory > MOST_MEMORY_MB else [])

    async def _sample(self) -> None:
        while True:
            self._samples.append((time.monotonic(), self._coordinator.cpu_seconds()))
            await asyncio.sleep(_SAMPLE_S)
