"""What a worker tells Prometheus: its engine's metrics under vLLM's names, and those of its own process."""

import asyncio
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from tokenwire.worker.engine import Engine


class WorkerMetrics:
    """The metrics of one worker, collected when somebody asks."""

    def __init__(self, engine: Engine, sessions: Callable[[], int]) -> None:
        self._engine = engine
        self._own = CollectorRegistry()
        ProcessCollector(registry=self._own)
        connected = Gauge("tokenwire_worker_sessions", "Coordinators that are connected.", registry=self._own)
        connected.set_function(sessions)

    async def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        # Hundreds of lines: not on the loop that carries everybody's tokens.
        return await asyncio.to_thread(generate_latest, self)

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        yield from self._engine.metrics()
        yield from self._own.collect()
