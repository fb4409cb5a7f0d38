"""TCP over the simulated network: connections for clients that bring their own protocol, such as asyncio's streams."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from tests.simulation.network import Connection, ListeningServer, Network
from tests.simulation.world import NODE, Node

_RETRY_S = 0.25
"""Interval of attempts to reach a host behind a partition."""
_ORDERLY = 0.5
"""Share of lost connections that end in order."""


class StreamServer(ListeningServer, Protocol):
    """A server of byte streams."""

    def on_data(self, connection: "StreamConnection", data: bytes) -> None:
        """Take bytes of a client."""


class StreamConnection(Connection):
    """A connection of two byte streams."""

    def __init__(self, network: Network, client: Node, server: StreamServer, protocol: asyncio.Protocol) -> None:
        super().__init__(network, client, server.node)
        self.received = bytearray()
        """What the server has received and not used yet."""
        self._stream_server = server
        self._protocol = protocol
        self._closing = False
        self._half_closed = False
        """Whether the server's end has come, and was not an error."""

    def send(self, data: bytes) -> None:
        """Send bytes to the client."""
        self.to_client.send("data", data)

    def write(self, data: bytes) -> None:
        """Send bytes to the server."""
        if self._half_closed:
            self._end(ConnectionResetError("Connection reset by peer"))
        if not self._closing:
            self.to_server.send("data", data)

    @property
    def is_closing(self) -> bool:
        """Whether the client has closed it, or knows that it is lost."""
        return self._closing

    def hang_up(self) -> None:
        """Close it at the client."""
        self.to_server.send("close")
        self._end(None)

    def on_server_message(self, *message: Any) -> None:
        """Take bytes, or the client's end."""
        if message[0] == "data":
            self._stream_server.on_data(self, message[1])
        else:
            self.close()

    def on_client_message(self, *message: Any) -> None:
        """Take bytes."""
        if not self._closing:
            self._protocol.data_received(message[1])

    def on_client_lost(self) -> None:
        """Notify the protocol of an end, as after an idle timeout, or of a reset."""
        if self._closing:
            return
        if self.network.random.random() < _ORDERLY:
            self._half_closed = bool(self._protocol.eof_received())
        if not self._half_closed:
            self._end(ConnectionResetError("Connection reset by peer"))

    def on_server_lost(self) -> None:
        """Do nothing."""

    def _end(self, error: Exception | None) -> None:
        if self._closing:
            return
        self._closing = True
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class StreamTransport(asyncio.Transport):
    """The client's side of a connection, as asyncio knows it."""

    def __init__(self, connection: StreamConnection) -> None:
        super().__init__()
        self._connection = connection

    def write(self, data: Any) -> None:
        """Send bytes."""
        self._connection.write(bytes(data))

    def is_closing(self) -> bool:
        """Return whether it is closed, or lost."""
        return self._connection.is_closing

    def close(self) -> None:
        """Close it."""
        self._connection.hang_up()

    def abort(self) -> None:
        """Close it."""
        self._connection.hang_up()


async def open_stream(
    network: Network, factory: Callable[[], asyncio.Protocol], address: str
) -> tuple[asyncio.Transport, asyncio.Protocol]:
    """Connect the running process to a server. Raises ConnectionRefusedError; a partition is waited for."""
    client = NODE.get()
    while True:
        server = network.listeners.get(address)
        if server is None:
            await asyncio.sleep(2 * network.latency(client, client))
            raise ConnectionRefusedError(address)
        if network.is_blocked(client, server.node):
            await asyncio.sleep(_RETRY_S)
            continue
        await asyncio.sleep(network.latency(client, server.node) + network.latency(server.node, client))
        if network.listeners.get(address) is server:
            protocol = factory()
            transport = StreamTransport(StreamConnection(network, client, cast("StreamServer", server), protocol))
            protocol.connection_made(transport)
            return transport, protocol
