"""The coordinator process: binds its port, serves, drains on SIGTERM."""

import asyncio
import logging
import socket

import uvicorn

from coordinator.app import build_app
from coordinator.connection import lending_protocol
from coordinator.fleet.pool import WorkerPool
from coordinator.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_BACKLOG = 2048


class CoordinatorServer(uvicorn.Server):
    """uvicorn, with our protocol, and a line that says when requests can come."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        app = build_app(settings)
        self._pool: WorkerPool = app.state.pool
        super().__init__(
            uvicorn.Config(
                app,
                http=lending_protocol(settings.stall_timeout_s),
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=int(settings.drain_timeout_s),
            )
        )

    def run_on(self, bound: socket.socket) -> None:
        """Serve on a bound socket until SIGTERM or SIGINT."""
        self.run(sockets=[bound])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so when the first worker is ready."""
        await super().startup(sockets)
        if sockets:
            host, port = sockets[0].getsockname()[:2]
            self._announcing = asyncio.create_task(self._announce(host, port))

    async def _announce(self, host: str, port: int) -> None:
        waiting = ", ".join(self._settings.workers)
        log.info("listening on http://%s:%d, waiting for workers: %s", host, port, waiting)
        await self._pool.wait_ready()
        model = next(session.model for session in self._pool.sessions if session.model is not None)
        log.info("ready: http://%s:%d serves %s", host, port, model.names[0])
