"""A TCP proxy in front of a worker that loses, delays and discards data."""

import asyncio
import random
from types import TracebackType


class Proxy:
    """Forwards bytes between coordinators and a worker's Unix socket, with faults."""

    def __init__(self, worker: str) -> None:
        self.address = ""
        self._path = worker.removeprefix("unix:")
        self._swallows = False
        self._delay_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._upstream: set[asyncio.StreamWriter] = set()
        self._downstream: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def swallow(self) -> None:
        """Discard all data from now on, silently: a black hole."""
        self._swallows = True

    def halve(self) -> None:
        """Close all connections to the worker without closing the coordinators': half-open connections."""
        self._swallows = True
        for writer in self._upstream:
            writer.close()

    def cut(self) -> None:
        """Close all connections, without what was discarded; new ones work."""
        self._swallows = False
        for writer in (*self._upstream, *self._downstream):
            writer.transport.abort()

    def delay(self, seconds: float) -> None:
        """Delay each piece by up to this time, and some by four times that, like retransmitted packets."""
        self._delay_s = seconds

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker_reader, worker_writer = await asyncio.open_unix_connection(self._path)
        self._upstream.add(worker_writer)
        self._downstream.add(writer)
        for source, sink in ((reader, worker_writer), (worker_reader, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(65536):
                if self._delay_s:
                    await asyncio.sleep(random.uniform(0, self._delay_s) * (4 if random.random() < 0.02 else 1))
                if not self._swallows:
                    sink.write(piece)
                    await sink.drain()
            if not self._swallows:
                sink.close()
        except (OSError, asyncio.IncompleteReadError):
            if not self._swallows:
                sink.close()
