"""gRPC's asyncio channels over the simulated network: generated stubs with their real bytes.

Modelled of gRPC: fail-fast calls, local cancellation, deadlines. One channel is one connection, as in tokenwire.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Generator
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.simulation.network import Network
from tests.simulation.rpc_server import LOST, RpcConnection, Server, Status, to_bytes
from tests.simulation.skew import as_read, as_sent, sends_unknown, unknown_message
from tests.simulation.witness import Witness
from tests.simulation.world import NODE, Node
from tokenwire.peer_auth.client import ChannelFactory, Metadata

_CONNECT_TIMEOUT_S = 20.0
_CONNECT_RETRY_S = 0.25
_NO_METADATA = grpc.aio.Metadata()


class SimulatedChannels(ChannelFactory):
    """Opens simulated channels."""

    def __init__(self, network: Network, witness: Witness) -> None:
        self._network = network
        self._witness = witness

    def open_channel(self, address: str) -> Any:
        """Open a channel."""
        return Channel(self._network, self._witness, address)

    def metadata(self) -> Metadata | None:
        """Return None."""
        return None

    def explain(self, error: grpc.aio.AioRpcError) -> str | None:
        """Return None."""
        return None


class Channel:
    """Stands for grpc.aio.Channel."""

    def __init__(self, network: Network, witness: Witness, address: str) -> None:
        self.network = network
        self.witness = witness
        self.address = address
        self.node = NODE.get()
        self.connection: RpcConnection | None = None
        self.calls: dict[int, ClientCall] = {}
        self.closed = False
        self._numbers = 0

    def stream_stream(
        self, method: str, request_serializer: Any, response_deserializer: Callable[[bytes], Any], **_: Any
    ) -> Callable[..., "ClientCall"]:
        """Return a method of streams."""
        return lambda requests, metadata=None: ClientCall(self, method, response_deserializer, requests=requests)

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Callable[[bytes], Any], **_: Any
    ) -> Callable[..., "ClientCall"]:
        """Return a method of single messages."""
        return lambda request, timeout=None, metadata=None: ClientCall(
            self, method, response_deserializer, request=request, timeout=timeout
        )

    def next_number(self) -> int:
        """Return the number of a new call. Raises UsageError on a closed channel."""
        if self.closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self._numbers += 1
        return self._numbers

    async def close(self, grace: float | None = None) -> None:
        """Cancel all calls and disconnect."""
        self.closed = True
        for call in list(self.calls.values()):
            call.cancel()
        if self.connection is not None:
            self.connection.cut()

    async def connect(self) -> RpcConnection:
        """Return the connection, made if there is none. Raises ConnectionError."""
        network, started = self.network, self.network.world.time()
        while True:
            if self.connection is not None and not self.connection.broken:
                return self.connection
            server = network.listeners.get(self.address)
            if not isinstance(server, Server):
                await asyncio.sleep(2 * network.latency(self.node, self.node))
                raise ConnectionError
            if not network.is_blocked(self.node, server.node):
                await asyncio.sleep(network.latency(self.node, server.node) + network.latency(server.node, self.node))
                if self.closed or network.listeners.get(self.address) is not server:
                    raise ConnectionError
                if self.connection is None or self.connection.broken:
                    self.connection = RpcConnection(network, self.node, server)
                continue
            if network.world.time() - started > _CONNECT_TIMEOUT_S:
                raise ConnectionError
            await asyncio.sleep(_CONNECT_RETRY_S)


class ClientCall:
    """The client's side of a call: awaited for a single response, read for a stream."""

    def __init__(
        self,
        channel: Channel,
        method: str,
        deserialize: Callable[[bytes], Any],
        *,
        request: Message | None = None,
        requests: AsyncIterable[Message] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._channel = channel
        self._number = channel.next_number()
        self._deserialize = deserialize
        self._responses: deque[bytes] = deque()
        self._status: Status | None = None
        self._cancelled = False
        self._request = request
        self._server: Node | None = None
        """The process that serves it."""
        self._connection: RpcConnection | None = None
        """Its own: the channel may have a newer one."""
        self._waiter: asyncio.Future[None] | None = None
        channel.calls[self._number] = self
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout, self._on_deadline) if timeout else None
        self._sender = loop.create_task(self._send(method, request, requests))

    async def read(self) -> Any:
        """Return the next response, or EOF. Raises AioRpcError, or CancelledError after a local cancellation."""
        while not self._responses:
            if self._status is not None:
                self._on_end()
                self._raise_status(self._status)
                return grpc.aio.EOF
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = self._responses.popleft()
        connection = self._channel.connection
        if connection is not None and (served := connection.served.get(self._number)) is not None:
            served.unread -= len(data)
            if served.is_blocked:  # as HTTP/2's updates of a window, but sent only to a writer that waits for one
                connection.to_server.send("read", self._number)
        message = as_read(self._channel.node, self._deserialize(data))
        if self._server is not None:
            self._channel.witness.on_response(self._server, self._request, message)
        self._channel.witness.on_event(self, message)
        return message

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            response = yield from self.read().__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return response

    def cancel(self) -> bool:
        """Cancel the call; return whether it was open."""
        self._on_end()
        if self._status is not None:
            return False
        self._cancelled = True
        self._send_cancel()
        self.end((grpc.StatusCode.CANCELLED, "Locally cancelled by application!"))
        return True

    def on_message(self, data: bytes) -> None:
        """Take a response."""
        self._responses.append(data)
        self._wake()

    def end(self, status: Status) -> None:
        """End the call with a status."""
        if self._status is None:
            self._status = status
            self._sender.cancel()
            if self._timer is not None:
                self._timer.cancel()
            self._channel.calls.pop(self._number, None)
            if self._channel.connection is not None:
                self._channel.connection.calls.pop(self._number, None)
            if status is LOST and self._channel.network.random.random() < 0.5:
                self._responses.clear()  # a broken transport may take along what was not read yet
        self._wake()

    async def _send(self, method: str, request: Message | None, requests: AsyncIterable[Message] | None) -> None:
        try:
            connection = await self._channel.connect()
        except ConnectionError:
            self.end((grpc.StatusCode.UNAVAILABLE, "failed to connect"))
            return
        connection.calls[self._number] = self
        self._connection, self._server = connection, connection.server
        self._channel.witness.on_control_call(connection.server, request)
        lane = connection.to_server
        node = self._channel.node
        lane.send("call", self._number, method, b"" if request is None else to_bytes(as_sent(node, request)))
        if requests is not None:
            number = 0
            async for each in requests:
                self._channel.witness.on_command(self, self._channel.address, connection.server, each)
                lane.send("message", self._number, to_bytes(as_sent(node, each)))
                number += 1
                if sends_unknown(node, number):
                    lane.send("message", self._number, to_bytes(unknown_message(each)))

    def _on_end(self) -> None:
        self._channel.witness.on_end(self, self._may_end)

    @property
    def _may_end(self) -> bool:
        """Whether the simulation has done something that may end it."""
        connection, network = self._connection, self._channel.network
        if connection is None or connection.broken:
            return True
        nodes = connection.client, connection.server
        if (nodes[0].name, nodes[1].name) in network.disturbed:
            return True
        return any(node.dead or node.harmed or node.lies or node.told_to_end for node in nodes)

    def _send_cancel(self) -> None:
        connection = self._channel.connection
        if connection is not None and not connection.broken and self._number in connection.calls:
            connection.to_server.send("cancel", self._number)

    def _on_deadline(self) -> None:
        if self._status is None:
            self._send_cancel()
        self.end((grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _raise_status(self, status: Status) -> None:
        if self._cancelled:
            raise asyncio.CancelledError
        code, details = status
        if code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(code, _NO_METADATA, _NO_METADATA, details=details)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
