"""What counts the requests and the fleet of one process, and shares it with the processes of the same port."""

from dataclasses import dataclass

from tokenwire.coordinator.observability.metrics.metrics import Metrics
from tokenwire.coordinator.observability.record import RequestListener
from tokenwire.coordinator.observability.siblings import Siblings
from tokenwire.coordinator.observability.traffic import TrafficSamples


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers, started and stopped together."""

    metrics: Metrics
    siblings: Siblings
    traffic: TrafficSamples | None
    """Samples for the status page; None without one."""

    def listeners(self) -> list[RequestListener]:
        """Return those that count requests."""
        listeners = (self.metrics.requests, self.metrics.tenants, self.traffic)
        return [listener for listener in listeners if listener is not None]

    async def start(self) -> None:
        """Start timers, and serve the sibling processes."""
        self.metrics.start()
        if self.traffic is not None:
            self.traffic.start()
        await self.siblings.start()

    async def stop(self) -> None:
        """Stop all."""
        await self.siblings.stop()
        if self.traffic is not None:
            self.traffic.stop()
        self.metrics.stop()
