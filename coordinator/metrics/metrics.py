"""Everything that is counted, as one object: listens to requests, and answers Prometheus."""

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from coordinator.metrics.exposition import Exposition, Siblings, WorkersMetrics
from coordinator.metrics.fleet import FleetCollector
from coordinator.metrics.loop_lag import LoopLag
from coordinator.metrics.requests import RequestMetrics
from tokenwire import __version__


class Metrics:
    """The metrics of one coordinator process."""

    def __init__(
        self, fleet: FleetCollector, siblings: Siblings | None = None, workers: WorkersMetrics | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry)
        """Hears of requests."""
        self.registry.register(fleet)
        ProcessCollector(registry=self.registry)
        info = Gauge("tokenwire_build_info", "1, with the version.", ("version",), registry=self.registry)
        info.labels(__version__).set(1)
        self._lag = LoopLag(self.registry)
        self._exposition = Exposition(self.registry, siblings, workers)

    def start(self) -> None:
        """Begin to look at the event loop."""
        self._lag.start()

    def stop(self) -> None:
        """End what runs."""
        self._lag.stop()

    async def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return await self._exposition.text()
