"""HTTP at the ASGI boundary, over the simulated network: what a client reads is what its coordinator sent it."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message

from tests.simulation.network import Connection, Network, resolve
from tests.simulation.world import Node

WINDOW_BYTES = 16 * 1024
"""Bytes that a client may have unread before the server's writes block."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with a JSON body."""

    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    method: str = "POST"
    address: str = "127.0.0.1"
    """Of its client."""


class HttpServer:
    """The server of one coordinator process: accepts connections, and lists the requests that are being served."""

    def __init__(self, node: Node, app: ASGIApp) -> None:
        self.node = node
        self.accepts = True
        self.tasks: dict[asyncio.Task[None], None] = {}
        self._app = app

    def serve(self, exchange: "HttpExchange") -> None:
        """Serve a request in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._run(exchange))
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))

    async def _run(self, exchange: "HttpExchange") -> None:
        try:
            await self._app(exchange.scope(), exchange.receive, exchange.send)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.node.world.errors.append(f"{exchange.request.path} raised {error!r}")
        finally:
            exchange.end()


class HttpExchange(Connection):
    """One request and its response, on a connection of their own."""

    def __init__(self, network: Network, client: Node, server: HttpServer, request: HttpRequest) -> None:
        super().__init__(network, client, server.node)
        self.request = request
        self.lost = False
        """Whether the client has lost the connection before the end of the response."""
        self.closed_early = False
        """Whether the application ended it: nothing has happened to the connection."""
        self.on_served: Callable[[], None] = lambda: None
        """Called when the server begins with the request."""
        self._http_server = server
        self._events: deque[Message] = deque()
        self._event_arrived: asyncio.Future[None] | None = None
        self._unread = 0
        self._writable: asyncio.Future[None] | None = None
        self._messages: deque[Message] = deque()
        self._message_arrived: asyncio.Future[None] | None = None
        self._server_gone = False
        self._complete = False
        self._ended = False
        """Whether the server has sent the end of the response."""
        self.to_server.send("request", request.body)

    # At the client.

    async def read(self) -> Message | None:
        """Return the next message of the response; None after its end, or when the connection is lost."""
        while not self._messages:
            if self._complete or self.lost:
                return None
            self._message_arrived = asyncio.get_running_loop().create_future()
            await self._message_arrived
        message = self._messages.popleft()
        if size := len(message.get("body", b"")):
            self.to_server.send("read", size)
        self._complete = message["type"] == "http.response.body" and not message.get("more_body")
        if self._complete:
            self.to_server.send("done")
        return message

    def leave(self) -> None:
        """Disconnect."""
        self.to_server.send("done")
        self.lost = True
        resolve(self._message_arrived)

    def on_client_message(self, *message: Any) -> None:
        """Take a message of the response, or notice that it ends too early."""
        if message[0] == "response":
            self._messages.append(message[1])
            resolve(self._message_arrived)
        else:
            self.closed_early = True
            self.on_client_lost()

    def on_client_lost(self) -> None:
        """End `read`."""
        self.lost = True
        resolve(self._message_arrived)

    # At the server.

    def scope(self) -> dict[str, Any]:
        """Return the ASGI scope."""
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.request.method,
            "scheme": "http",
            "path": self.request.path,
            "raw_path": self.request.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(self.request.body)),
                *self.request.headers,
            ],
            "client": (self.request.address, 1),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }

    async def receive(self) -> Message:
        """Return the next event for the application: its body, then the disconnect."""
        while not self._events:
            if self._server_gone:
                return {"type": "http.disconnect"}
            self._event_arrived = asyncio.get_running_loop().create_future()
            await self._event_arrived
        return self._events.popleft()

    async def send(self, message: Message) -> None:
        """Send a message of the response, unless the client is gone; waits while it reads too slowly."""
        size = len(message.get("body", b""))
        while self._unread and self._unread + size > WINDOW_BYTES and not self._server_gone:
            self.network.reached["slow reader"] += 1
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable
        if not self._server_gone:
            self._ended = message["type"] == "http.response.body" and not message.get("more_body")
            self._unread += size
            self.to_client.send("response", message)

    def end(self) -> None:
        """Close a connection whose response ended early, as HTTP servers do: its client can see it."""
        if not self._server_gone and not self._ended:
            self.to_client.send("close")

    def on_server_message(self, *message: Any) -> None:
        """Begin to serve, or take the client's progress."""
        kind, *rest = message
        if kind == "request":
            if self._http_server.accepts:
                self._events.append({"type": "http.request", "body": rest[0], "more_body": False})
                self.on_served()
                self._http_server.serve(self)
            else:
                self.cut()
        elif kind == "read":
            self._unread -= rest[0]
            resolve(self._writable)
        else:
            self.on_server_lost()
            self.close()

    def on_server_lost(self) -> None:
        """Notify the application that the client has disconnected."""
        self._server_gone = True
        resolve(self._event_arrived)
        resolve(self._writable)
