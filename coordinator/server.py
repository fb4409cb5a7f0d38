"""The coordinator process: binds its port, serves, drains on SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace

import uvicorn

from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.http.lent_connection import lending_protocol
from tokenwire.coordinator.http.tls import https_context
from tokenwire.coordinator.http.uvicorn_server import HttpServer
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.process.gc_tuning import collect_rarely, freeze_heap
from tokenwire.process.sockets import PublicPort
from tokenwire.process.startup import report_ready
from tokenwire.process.threads import take_short_turns

log = logging.getLogger(__name__)

_BACKLOG = 2048


class CoordinatorServer(HttpServer):
    """uvicorn with our protocol, announced when the first worker is ready."""

    def __init__(self, settings: CoordinatorSettings, bound: socket.socket, ready_fd: int | None = None) -> None:
        """Serve on a bound socket. `ready_fd`: a pipe for the readiness signal, if the parent process announces it."""
        self._settings = settings = replace(settings, host=bound.getsockname()[0])
        self._bound = bound
        self._ready_fd = ready_fd
        context = https_context(settings.https)
        app = build_app(settings)
        self._pool: WorkerPool = app.state.pool
        super().__init__(
            uvicorn.Config(
                app,
                http=lending_protocol(
                    settings.client_stall_timeout_s,
                    settings.protocol_limits,
                    settings.max_backlog_bytes,
                    settings.bodies.max_bodies_bytes,
                ),
                ssl_context_factory=None if context is None else lambda config, make: context,
                timeout_keep_alive=settings.keep_alive_timeout_s,
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
            ),
            app.state.readiness,
            settings.protocol_limits.head_timeout_s,
            settings.drain_timeout_s,
        )

    def run_bound(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.run(sockets=[self._bound])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on signals. Unlike uvicorn's, do not raise the signal again after a clean stop."""
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and announce it when the first worker is ready."""
        await super().startup(sockets)
        if sockets:
            host, port = sockets[0].getsockname()[:2]
            self._announcing = asyncio.create_task(self._announce(host, port))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Report unhealthy, keep serving for the drain delay, then stop listening and finish replies."""
        self._readiness.stopping = True
        if self._settings.drain_delay_s:
            log.info("draining: will stop listening in %g s", self._settings.drain_delay_s)
            # Otherwise clients would keep using their connections, some at the moment of the end.
            self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
            await asyncio.sleep(self._settings.drain_delay_s)
        await super().shutdown(sockets)

    async def _announce(self, host: str, port: int) -> None:
        waiting = ", ".join(self._settings.workers)
        log.info("listening on %s://%s:%d, waiting for workers: %s", self._settings.https.scheme, host, port, waiting)
        await self._pool.wait_ready()
        model = next(session.model for session in self._pool.sessions if session.model is not None)
        task = model.pooling.task if model.HasField("pooling") else "generate"
        task = "score" if model.pooling.score == "cross-encoder" else task
        log.info("serving %s", model.names[0])
        freeze_heap()
        collect_rarely()
        take_short_turns()
        if self._ready_fd is None:
            PublicPort(host, port, self._settings.https.scheme, self._settings.status_page).announce(task)
        else:
            report_ready(self._ready_fd, task)
