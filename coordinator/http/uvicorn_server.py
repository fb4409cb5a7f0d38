"""uvicorn with timeouts for TLS handshakes and drains."""

import asyncio
import logging
import socket

import uvicorn

from tokenwire.coordinator.http.readiness import Readiness

log = logging.getLogger(__name__)

_FINAL_WRITES_S = 2
"""Time for clients to read responses that were ended at the deadline."""


class HttpServer(uvicorn.Server):
    """Serves on sockets that are already bound."""

    def __init__(
        self, config: uvicorn.Config, readiness: Readiness, handshake_timeout_s: float, drain_timeout_s: float
    ) -> None:
        config.timeout_graceful_shutdown = int(drain_timeout_s) + _FINAL_WRITES_S
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(config)
        readiness.tasks = self.server_state.tasks
        self._readiness = readiness
        self._handshake_timeout_s = handshake_timeout_s
        self._drain_timeout_s = drain_timeout_s

    @property
    def should_exit(self) -> bool:
        """Whether it is to stop; set from any thread, and by signals."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        """Serve until the end. uvicorn would look for it ten times a second, half of all that an idle process does."""
        self._loop = asyncio.get_running_loop()  # before it looks
        if not await self.on_tick(0):
            await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup([])
        loop, config = asyncio.get_running_loop(), self.config
        for bound in sockets or ():
            server = await loop.create_server(
                self._make_protocol,
                sock=bound,
                ssl=config.ssl,
                ssl_handshake_timeout=self._handshake_timeout_s if config.ssl else None,
                backlog=config.backlog,
            )
            self.servers.append(server)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and wait for running requests; end them at the deadline."""
        deadline = asyncio.get_running_loop().call_later(self._drain_timeout_s, self._end_requests)
        await super().shutdown(sockets)
        deadline.cancel()

    def _make_protocol(self) -> asyncio.Protocol:
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def _end_requests(self) -> None:
        tasks = list(self.server_state.tasks)
        if tasks:
            log.warning("drain deadline passed: ending %d request(s)", len(tasks))
        self._readiness.out_of_time = True
        for task in tasks:
            task.cancel()
