"""Workers behind a DNS name, such as a headless service of Kubernetes."""

import asyncio
import logging
import socket
from collections.abc import Callable

from tokenwire.coordinator.fleet.discovery.source import Update, join_port

log = logging.getLogger(__name__)

Serves = Callable[[str], bool]
"""Returns whether a worker takes requests now, whether or not DNS still lists it."""


class DnsSource:
    """Resolves a name periodically; every address is a worker.

    A worker missing from a response stays while it takes requests: responses may be truncated, and a worker that
    stopped closes its session itself.
    """

    def __init__(self, scheme: str, host: str, port: int, serves: Serves, interval_s: float = 5.0) -> None:
        self._scheme = scheme
        self._host = host
        self._port = port
        self._serves = serves
        self._interval_s = interval_s
        self._known: list[str] | None = None
        self._failure = ""

    async def run(self, update: Update) -> None:
        """Call `update` when the addresses change; while the name does not resolve, the last ones stay."""
        while True:
            try:
                addresses = await self._resolve()
            except OSError as error:
                self._log_failure(error.strerror or str(error))
            else:
                self._log_failure("")
                kept = [each for each in self._known or () if each not in addresses and self._serves(each)]
                known = sorted(addresses | {*kept})
                if known != self._known:
                    self._known = known
                    update(known)
            await asyncio.sleep(self._interval_s)

    async def _resolve(self) -> set[str]:
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return {self._scheme + join_port(str(address[0]), self._port) for *_, address in found}

    def _log_failure(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.warning("cannot resolve %s, keeping known workers: %s", self._host, failure)
        self._failure = failure
