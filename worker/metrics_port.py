"""A port on which Prometheus asks for metrics, over HTTP and without certificates."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web


class MetricsPort:
    """Serves `/metrics` at an address of its own."""

    def __init__(self, address: str, text: Callable[[], Awaitable[bytes]]) -> None:
        self._text = text
        self._runner: web.AppRunner | None = None
        self.address = address

    async def startup(self) -> None:
        """Listen. Raises OSError."""
        from aiohttp import web  # only where there is such a port: it takes a fifth of a second

        app = web.Application()
        app.router.add_get("/metrics", self._answer)
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

    async def _answer(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._text(), headers=headers)
