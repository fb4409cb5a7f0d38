"""gRPC's asyncio servers over the simulated network, and the connections to them.

Generated servicers are served with their real bytes. Modelled of gRPC: flow control by bytes, cancellation of handlers,
graceful stops.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from tests.simulation.network import Connection, Network, resolve
from tests.simulation.skew import as_read, as_sent, has_call, sends_unknown, unknown_message
from tests.simulation.trace_names import TraceNames
from tests.simulation.world import NODE, Node
from tokenwire.peer_auth.server import AuthenticatedPort
from tokenwire.peer_auth.settings import PeerAuthSettings

if TYPE_CHECKING:
    from tests.simulation.rpc_client import ClientCall

Status = tuple[grpc.StatusCode, str]

_ADOPT = "/tokenwire.v1.Control/AdoptState"
_MANY_ADOPTIONS = 60
"""More than one connection lives to see, unless adoptions change nothing."""
LOST: Status = (grpc.StatusCode.UNAVAILABLE, "connection lost")
_OK: Status = (grpc.StatusCode.OK, "")


def to_bytes(message: Message) -> bytes:
    """Return a message's bytes. Maps are ordered by each process's own hash otherwise."""
    return message.SerializeToString(deterministic=True)


class SimulatedPort(AuthenticatedPort):
    """Creates simulated servers."""

    def __init__(self, network: Network) -> None:
        super().__init__(PeerAuthSettings())
        self._network = network

    def make_server(self) -> Any:
        """Return a server that does not listen yet."""
        return Server(self._network)

    def listen(self, server: Any, address: str) -> int:
        """Make a server listen on an address; return the port."""
        server.address = address
        return int(address.rpartition(":")[2])

    def warn(self, address: str) -> None:
        """Do nothing."""


class RpcConnection(Connection):
    """The calls between one channel and one server."""

    def __init__(self, network: Network, client: Node, server: "Server") -> None:
        self.calls: dict[int, ClientCall] = {}
        self.served: dict[int, ServedCall] = {}
        self.rpc_server = server
        self._names = TraceNames()
        self._adoptions = 0
        super().__init__(network, client, server.node)

    def describe_request(self, *message: Any) -> str:
        """Return what a message to the server says."""
        return self._names.describe(True, *message)

    def describe_response(self, *message: Any) -> str:
        """Return what a message to the client says."""
        return self._names.describe(False, *message)

    def on_server_message(self, *message: Any) -> None:
        """Begin, continue or cancel a call."""
        kind, number, *rest = message
        if kind == "call" and not has_call(self.server, rest[0]):
            self.to_client.send("status", number, (grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
            return
        if kind == "call":
            self._count_adoption(rest[0])
            self.served[number] = ServedCall(self, number, *rest)
            return
        served = self.served.get(number)
        if served is not None:
            handlers: dict[str, Callable[..., None]] = {
                "message": served.on_message,
                "read": served.on_read,
                "cancel": served.cancel,
            }
            handlers[kind](*rest)

    def _count_adoption(self, method: str) -> None:
        self._adoptions += method == _ADOPT
        if self._adoptions == _MANY_ADOPTIONS:
            self.network.world.errors.append(f"{self.client.name} reconciles {self.server.name} without end")

    def on_client_message(self, *message: Any) -> None:
        """Take a response, or the end of a call."""
        kind, number, rest = message
        call = self.calls.get(number)
        if call is not None:
            (call.on_message if kind == "message" else call.end)(rest)

    def on_client_lost(self) -> None:
        """End all calls."""
        for call in list(self.calls.values()):
            call.end(LOST)

    def on_server_lost(self) -> None:
        """Cancel all handlers."""
        for served in list(self.served.values()):
            served.cancel()


class Aborted(Exception):
    """A handler ended its call with a status."""


class ServedCall:
    """The server's side of a call: its handler's task, its context, and the iterator of its requests."""

    def __init__(self, connection: RpcConnection, number: int, method: str, data: bytes) -> None:
        self._connection = connection
        self._number = number
        self._handler = connection.rpc_server.methods[method]
        self._requests: deque[bytes] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self.unread = 0
        """Bytes of responses that the client has not read."""
        self._readable: asyncio.Future[None] | None = None
        self._over = False
        self._written = 0
        self._node = connection.server
        connection.rpc_server.open_calls[self] = None
        self._task = asyncio.get_running_loop().create_task(self._run(data))

    def on_message(self, data: bytes) -> None:
        """Take a request of the stream."""
        self._requests.append(data)
        resolve(self._arrived)

    @property
    def is_blocked(self) -> bool:
        """Whether a response waits until the client has read earlier ones."""
        return self._readable is not None and not self._readable.done()

    def on_read(self) -> None:
        """Go on writing: the client has read something."""
        resolve(self._readable)

    def cancel(self) -> None:
        """Cancel the handler: the client is gone, or the server stops. gRPC does so once, whatever comes after."""
        self._over = True
        if not self._task.cancelling():
            self._task.cancel()

    def __aiter__(self) -> "ServedCall":
        return self

    async def __anext__(self) -> Any:
        while not self._requests:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return as_read(self._node, self._handler.request_deserializer(self._requests.popleft()))

    async def write(self, message: Message) -> None:
        """Send a response; waits while too much is unread. Raises UsageError after the end of the call."""
        self._written += 1
        await self._write(to_bytes(as_sent(self._node, message)))
        if sends_unknown(self._node, self._written) and self._handler.stream_stream is not None:
            await self._write(to_bytes(unknown_message(message)))

    async def _write(self, data: bytes) -> None:
        network = self._connection.network
        while self.unread and self.unread + len(data) > network.window and not self._over:
            network.reached["writer blocked"] += 1
            self._readable = asyncio.get_running_loop().create_future()
            await self._readable
        if self._over:
            raise grpc.aio.UsageError("RPC already finished.")
        self.unread += len(data)
        self._connection.to_client.send("message", self._number, data)

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with an error."""
        self._end((code, details))
        raise Aborted

    async def _run(self, data: bytes) -> None:
        handler = self._handler
        try:
            if handler.stream_stream is not None:
                await handler.stream_stream(self, self)
            else:
                await self.write(
                    await handler.unary_unary(as_read(self._node, handler.request_deserializer(data)), self)
                )
            self._end(_OK)
        except (Aborted, grpc.aio.UsageError):
            pass
        except asyncio.CancelledError:
            self._end((grpc.StatusCode.UNAVAILABLE, "Cancelling all calls"))
        except Exception as error:
            self._connection.network.world.errors.append(f"{handler} raised {error!r}")
            self._end((grpc.StatusCode.UNKNOWN, repr(error)))
        finally:
            self._over = True
            self._connection.served.pop(self._number, None)
            self._connection.rpc_server.open_calls.pop(self, None)

    def _end(self, status: Status) -> None:
        if not self._over and not self._connection.broken:
            self._connection.to_client.send("status", self._number, status)
        self._over = True


class Server:
    """Stands for grpc.aio.Server."""

    def __init__(self, network: Network) -> None:
        self.node = NODE.get()
        self.address = ""
        self.methods: dict[str, Any] = {}
        self.open_calls: dict[ServedCall, None] = {}
        self._network = network

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: methods are registered."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Serve the methods of a service."""
        self.methods |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    async def start(self) -> None:
        """Listen."""
        self._network.listeners[self.address] = self

    async def stop(self, grace: float | None) -> None:
        """Stop listening, let calls end within the grace period, then cancel them and disconnect."""
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        deadline = self._network.world.time() + (grace or 0.0)
        while self.open_calls and self._network.world.time() < deadline:  # noqa: ASYNC110 (virtual time costs nothing)
            await asyncio.sleep(0.01)
        for served in list(self.open_calls):
            served.cancel()
        await asyncio.sleep(0.01)
        for connection in list(self._network.connections):
            if isinstance(connection, RpcConnection) and connection.rpc_server is self:
                connection.cut()
