"""All metrics of one coordinator process, and their exposition to Prometheus."""

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from tokenwire import __version__
from tokenwire.coordinator.observability.metrics.exposition import Exposition, WorkersMetrics
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.coordinator.observability.metrics.loop_lag import LoopLag
from tokenwire.coordinator.observability.metrics.requests import RequestMetrics
from tokenwire.coordinator.observability.metrics.siblings import SiblingSockets


class Metrics:
    """The registry of one coordinator process, with its collectors and sockets."""

    def __init__(
        self,
        fleet: FleetCollector,
        workers: WorkersMetrics | None = None,
        siblings: Path | None = None,
        in_flight: Callable[[], float] = lambda: 0,
    ) -> None:
        """`siblings` is a directory shared by the processes of one port, `in_flight` counts requests."""
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry, in_flight)
        """The listener for requests."""
        self.registry.register(fleet)
        ProcessCollector(registry=self.registry)
        info = Gauge("tokenwire_build_info", "1, with the version.", ("version",), registry=self.registry)
        info.labels(__version__).set(1)
        self._lag = LoopLag(self.registry)
        self._siblings = None if siblings is None else SiblingSockets(siblings, self.registry.collect)
        self._exposition = Exposition(self.registry, self._siblings, workers)

    async def start(self) -> None:
        """Start measuring the event loop's lag and serving the sibling processes."""
        self._lag.start()
        if self._siblings is not None:
            await self._siblings.start()

    async def stop(self) -> None:
        """Stop both."""
        self._lag.stop()
        if self._siblings is not None:
            await self._siblings.stop()

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._exposition.text()
