"""Workers that a name in the DNS stands for, such as a headless service of Kubernetes."""

import asyncio
import logging
import socket
from collections.abc import Callable

from tokenwire.coordinator.fleet.discovery.source import Update, join_port

log = logging.getLogger(__name__)

Serves = Callable[[str], bool]
"""Tells whether a worker takes requests now, whatever became of its name."""


class DnsName:
    """Resolves a name again and again; every address is a worker.

    A worker whose address is not in an answer stays while it takes requests: answers may be cut short, and a
    worker that ended says so itself.
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
        """Tell of the addresses whenever they have changed; while the name cannot be resolved, the last ones hold."""
        while True:
            try:
                addresses = await self._resolve()
            except OSError as error:
                self._note(error.strerror or str(error))
            else:
                self._note("")
                kept = [each for each in self._known or () if each not in addresses and self._serves(each)]
                known = sorted(addresses | {*kept})
                if known != self._known:
                    self._known = known
                    update(known)
            await asyncio.sleep(self._interval_s)

    async def _resolve(self) -> set[str]:
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return {self._scheme + join_port(str(address[0]), self._port) for *_, address in found}

    def _note(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.warning("%s cannot be resolved, workers that are known stay: %s", self._host, failure)
        self._failure = failure
