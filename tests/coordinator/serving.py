"""A uvicorn server with one route per test, and a client that controls when it reads."""

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import uvicorn
from starlette.types import Receive, Scope, Send

from tests.workers import until
from tokenwire.coordinator.http.bounded_protocol import ProtocolLimits
from tokenwire.coordinator.http.connection import CONNECTION_EXTENSION, AsgiConnection
from tokenwire.coordinator.http.lent_connection import LentConnection, lending_protocol
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.http.uvicorn_server import HttpServer
from tokenwire.process.sockets import bind

STALL_TIMEOUT_S = 60.0
Result = TypeVar("Result")


class Exchange:
    """One request, as its route sees it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        self.path: str = scope["path"]
        self.body = body
        self.connection = scope.get("extensions", {}).get(CONNECTION_EXTENSION) or AsgiConnection(receive, send)
        self.lost = asyncio.Event()
        self.drained = asyncio.Event()
        self._receive = receive
        self._send = send

    def watch(self) -> None:
        """Let the connection set both events."""
        self.connection.watch(self.lost.set, self.drained.set)

    async def begin(self) -> None:
        """Start the response."""
        await self._send({"type": "http.response.start", "status": 200, "headers": []})

    async def end(self) -> None:
        """End the response after all writes."""
        await self.connection.flush()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def disconnect(self) -> None:
        """Wait until the server has detected that the client disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def congest(self, piece: bytes = bytes(16_384)) -> int:
        """Write until the reader is behind; return how many bytes that took."""
        size = 0
        while not self.connection.congested:
            self.connection.write(piece)
            size += len(piece)
            await asyncio.sleep(0)
        return size


Route = Callable[[Exchange], Awaitable[None]]


class ServerWithoutSignals(HttpServer):
    """A server in the process of the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signal handling to pytest."""
        yield


@asynccontextmanager
async def serving(
    route: Route,
    lent: bool,
    stall_timeout_s: float = STALL_TIMEOUT_S,
    limits: ProtocolLimits | None = None,
    context: ssl.SSLContext | None = None,
    max_receiving_bytes: float = math.inf,
) -> AsyncIterator[int]:
    """Run a server with our protocol or a plain one; yield its port. Exceptions of the route are raised at the end."""
    errors: list[Exception] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        exchange = Exchange(scope, receive, send, body)
        try:
            assert isinstance(exchange.connection, LentConnection if lent else AsgiConnection)
            await route(exchange)
        except Exception as error:
            errors.append(error)
            raise
        finally:
            exchange.connection.release()

    limits = limits or ProtocolLimits()
    protocol = (
        lending_protocol(stall_timeout_s, limits, max_receiving_bytes=max_receiving_bytes) if lent else "httptools"
    )
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        ssl_context_factory=None if context is None else lambda config, make: context,
    )
    server = ServerWithoutSignals(config, Readiness(), limits.head_timeout_s, drain_timeout_s=1)
    bound = bind("127.0.0.1", 0)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        await until(lambda: server.started)
        async with asyncio.timeout(20):
            yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        await running
    if errors:
        raise errors[0]


@dataclass(slots=True)
class HttpReply:
    """A received response."""

    status: int
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False
    """Whether the body ended as it should."""

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.chunks)


class SocketClient:
    """A connection that reads only on request."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unparsed = b""

    async def send(self, *paths: str) -> None:
        """Send requests, all at once."""
        requests = "".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths)
        await self.send_raw(requests.encode())

    async def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def read_all(self) -> bytes:
        """Read to the end of the connection."""
        while await self.read_some():
            pass
        return self._unparsed

    async def read_some(self, size: int = 65_536) -> int:
        """Read once; return the number of bytes, 0 at the end of the connection."""
        try:
            data = await self._receive(size)
        except ConnectionResetError:
            return 0
        self._unparsed += data
        return len(data)

    async def _receive(self, size: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._socket, size)

    async def read_reply(self) -> HttpReply:
        """Read one response, to its end or that of the connection."""
        head = await self._take_until(b"\r\n\r\n")
        assert head is not None, "the connection ended before a response came"
        assert b"transfer-encoding: chunked" in head
        reply = HttpReply(int(head[9:12]))
        while (line := await self._take_until(b"\r\n")) is not None:
            size = int(line, 16)
            while len(self._unparsed) < size + 2 and await self.read_some(1_000_000):
                pass
            chunk, end, self._unparsed = (
                self._unparsed[:size],
                self._unparsed[size : size + 2],
                self._unparsed[size + 2 :],
            )
            if end != b"\r\n":
                break
            if not size:
                reply.complete = True
                break
            reply.chunks.append(chunk)
        return reply

    async def at_end(self) -> bool:
        """Return whether nothing follows, by waiting for the end of the connection."""
        return not self._unparsed and not await self.read_some()

    def leave(self) -> None:
        """Close the connection."""
        self._socket.close()

    async def _take_until(self, separator: bytes) -> bytes | None:
        while separator not in self._unparsed:
            if not await self.read_some():
                return None
        taken, _, self._unparsed = self._unparsed.partition(separator)
        return taken


class TlsClient(SocketClient):
    """The same over TLS."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        await self._until_done(self._tls.do_handshake)
        self._tls.write(data)
        await super().send_raw(self._outgoing.read())

    async def _receive(self, size: int) -> bytes:
        try:
            return await self._until_done(lambda: self._tls.read(size))
        except ssl.SSLZeroReturnError:
            return b""

    async def _until_done(self, operation: Callable[[], Result]) -> Result:
        while True:
            try:
                return operation()
            except ssl.SSLWantReadError:
                await super().send_raw(self._outgoing.read())
                if data := await super()._receive(65_536):
                    self._incoming.write(data)
                else:
                    raise ConnectionResetError("the connection ended without a word") from None


@asynccontextmanager
async def connected_to(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[SocketClient]:
    """Connect, with a small receive buffer."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        yield SocketClient(connection) if context is None else TlsClient(connection, context)


async def greet(exchange: Exchange) -> None:
    """Respond."""
    await exchange.begin()
    exchange.connection.write(b"hello")
    await exchange.end()
