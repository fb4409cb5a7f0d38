"""Exchange among the processes that share a port, so that a request to any of them is answered for all."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

_TIMEOUT_S = 5.0
"""Only a process that stands still takes it: without its counters, Prometheus sees a reset."""
_END = b"\n"
"""The last byte of a complete response: a process may end while it writes one."""


class Siblings:
    """A Unix socket for each process, in a directory that only their user can enter. Alone, a process has none."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._own = None if directory is None else directory / f"{os.getpid()}.sock"
        self._responders: dict[str, Callable[[str], bytes]] = {}
        self._server: asyncio.Server | None = None

    def provide(self, topic: str, respond: Callable[[str], bytes]) -> None:
        """Register what responds to requests for a topic, given their argument."""
        self._responders[topic] = respond

    async def start(self) -> None:
        """Serve the siblings."""
        if self._own is not None:
            self._server = await asyncio.start_unix_server(self._serve, self._own)

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None and self._own is not None:
            self._server.close()
            self._own.unlink(missing_ok=True)

    async def fetch(self, topic: str, argument: str = "") -> Sequence[bytes]:
        """Return the response of each sibling; one that does not respond in time is left out."""
        if self._directory is None:
            return ()
        request = f"{topic} {argument}\n".encode()
        others = [path for path in self._directory.glob("*.sock") if path != self._own]
        responses = await asyncio.gather(*(_fetch(path, request) for path in others))
        return [response for response in responses if response is not None]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                topic, _, argument = (await reader.readline()).decode().strip().partition(" ")
                respond = self._responders.get(topic)
                if respond is not None:
                    writer.writelines((respond(argument), _END))
                    await writer.drain()
        writer.close()


async def _fetch(path: Path, request: bytes) -> bytes | None:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(request)
                response = await reader.read()
            finally:
                writer.close()
            if response.endswith(_END):
                return response.removesuffix(_END)
    return None
