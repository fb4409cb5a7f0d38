"""How late the event loop is: what blocks it makes every stream stutter."""

import asyncio

from prometheus_client import CollectorRegistry, Histogram

_LOOK_S = 0.25
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Sets an alarm again and again, and sees how late it rings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "tokenwire_event_loop_lag_seconds", "Delay of a timer.", registry=registry, buckets=_SECONDS
        )
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look."""
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(_LOOK_S, self._ring, loop.time() + _LOOK_S)

    def stop(self) -> None:
        """End it."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _ring(self, due: float) -> None:
        self._lag.observe(max(0.0, asyncio.get_running_loop().time() - due))
        self.start()
