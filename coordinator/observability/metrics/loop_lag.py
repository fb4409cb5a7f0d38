"""The lag of the event loop: blocking it delays every stream."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

_INTERVAL_S = 0.25
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Measures how late a periodic timer fires."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "tokenwire_event_loop_lag_seconds", "Delay of a timer.", registry=registry, buckets=_SECONDS
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_INTERVAL_S, self._on_timer, loop.time() + _INTERVAL_S)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self, due: float) -> None:
        self._lag.observe(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()
