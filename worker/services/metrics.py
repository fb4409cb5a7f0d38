"""A worker's Prometheus metrics: the engine's under vLLM's names and the process's own, and a port that serves them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from tokenwire.worker.engine.interface import Engine

if TYPE_CHECKING:
    from aiohttp import web


class WorkerMetrics:
    """The metrics of one worker, collected on each scrape."""

    def __init__(self, engine: Engine, sessions: Callable[[], int]) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        """The metrics of the process."""
        ProcessCollector(registry=self.registry)
        connected = Gauge("tokenwire_worker_sessions", "Connected coordinators.", registry=self.registry)
        connected.set_function(sessions)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        # Hundreds of lines: off the event loop, which carries all tokens.
        return await asyncio.to_thread(generate_latest, self)

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families of the engine and of the process."""
        yield from self._engine.metrics()
        yield from self.registry.collect()


class MetricsServer:
    """Serves `/metrics` over plain HTTP at its own address."""

    def __init__(self, address: str, text: Callable[[], Awaitable[bytes]]) -> None:
        self._text = text
        self._runner: web.AppRunner | None = None
        self.address = address

    async def startup(self) -> None:
        """Start listening. Raises OSError."""
        from aiohttp import web  # imported only if there is such a port: it takes 0.2 s

        app = web.Application()
        app.router.add_get("/metrics", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            if self.address.startswith("unix:"):
                await web.UnixSite(self._runner, self.address.removeprefix("unix:")).start()
            else:
                host, _, port = self.address.rpartition(":")
                await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()
                self.address = f"{host}:{self._runner.addresses[0][1]}"
        except OSError as error:
            raise OSError(f"cannot listen on {self.address} (--metrics-listen): {error}") from error

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._text(), headers=headers)
