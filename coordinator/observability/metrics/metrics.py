"""All metrics of one coordinator process, and their exposition to Prometheus."""

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector

from tokenwire import __version__
from tokenwire.coordinator.observability.metrics.exposition import Exposition
from tokenwire.coordinator.observability.metrics.fleet import FleetCollector
from tokenwire.coordinator.observability.metrics.relay import Relay
from tokenwire.coordinator.observability.metrics.request_metrics import RequestMetrics
from tokenwire.coordinator.observability.metrics.tenants import TenantMetrics
from tokenwire.coordinator.observability.siblings import Siblings

_LAG_INTERVAL_S = 0.25
_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The registry of one coordinator process, with its collectors."""

    def __init__(
        self,
        fleet: FleetCollector,
        workers: Relay | None = None,
        siblings: Siblings | None = None,
        in_flight: Callable[[], float] = lambda: 0,
        tenants: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """`siblings` are the other processes of the port, `in_flight` counts requests, `tenants` have keys."""
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry, in_flight)
        """The listener for requests."""
        self.tenants = None if tenants is None else TenantMetrics(tenants)
        """The listener for requests of tenants; None if no key is required."""
        if self.tenants is not None:
            self.registry.register(self.tenants)
        self.registry.register(fleet)
        if workers is not None:
            self.registry.register(workers)
        ProcessCollector(registry=self.registry)
        info = Gauge("tokenwire_build_info", "1, with the version.", ("version",), registry=self.registry)
        info.labels(__version__).set(1)
        self._lag = _LoopLag(self.registry)
        self._exposition = Exposition(self.registry, siblings or Siblings(), workers)

    def start(self) -> None:
        """Start measuring the event loop's lag."""
        self._lag.start()

    def stop(self) -> None:
        """Stop measuring it."""
        self._lag.stop()

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._exposition.text()


class _LoopLag:
    """Measures how late a periodic timer fires: blocking the event loop delays every stream."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "tokenwire_event_loop_lag_seconds",
            "Delay of a timer: a blocked event loop delays every stream.",
            registry=registry,
            buckets=_LAG_BUCKETS_S,
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LAG_INTERVAL_S, self._on_timer, loop.time() + _LAG_INTERVAL_S)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, due: float) -> None:
        self._lag.observe(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()
