"""The network between simulated processes: connections of two ordered lanes that delay, stall and lose messages."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from tests.simulation.world import Node, World

_KEEPALIVE_S = 15.0
"""A connection over which nothing can pass for this long is closed on both sides."""
_KEEPALIVE_CHECK_S = 5.0
_LONG_PARTITION_S = 20.0
"""Of a whole attempt to connect."""
_NOTICE_S = 0.01
"""The most by which the two sides of a broken connection notice it apart."""


class ListeningServer(Protocol):
    """A server's address: connections are made to it while it is registered."""

    node: Node


class Network:
    """All connections, and the faults of the network."""

    def __init__(self, world: World, latency_s: float, window: int) -> None:
        """`window`: bytes that one stream may have unread before its writer blocks."""
        self.world = world
        self.window = window
        self.reached: Counter[str] = Counter()
        """How often what seldom happens has happened."""
        self.random = random.Random(f"{world.seed} network")
        self.listeners: dict[str, ListeningServer] = {}
        self.connections: list[Connection] = []
        self._latency_s = latency_s
        self._blocked: set[tuple[str, str]] = set()
        self._blocked_at: dict[frozenset[str], float] = {}
        self._long_partitions = 0
        """Those that have ended."""
        self._slow: dict[tuple[str, str], float] = {}
        self.disturbed: set[tuple[str, str]] = set()
        """Hosts between which messages were held back, both ways."""
        self.far: dict[str, float] = {}
        """Latency to and from hosts that are farther away, or nearer, than others."""
        world.root.spawn(self._check_keepalive())

    def latency(self, source: Node, target: Node) -> float:
        """Draw the delay of one message, in seconds."""
        factor = self._slow.get((source.name, target.name), 1.0) if self._slow else 1.0
        latency_s = self._latency_s
        if self.far:
            latency_s = self.far.get(source.name) or self.far.get(target.name) or latency_s
        return latency_s * factor * (0.5 + self.random.random())

    def is_blocked(self, one: Node, other: Node) -> bool:
        """Return whether nothing passes between two processes."""
        return bool(self._blocked) and self.blocks(one.name, other.name)

    def blocks(self, one: str, other: str) -> bool:
        """Return whether nothing passes between two hosts."""
        return (one, other) in self._blocked

    def block(self, one: str, other: str) -> None:
        """Partition two hosts."""
        self.disturb(one, other)
        self._blocked |= {(one, other), (other, one)}
        self._blocked_at.setdefault(frozenset((one, other)), self.world.time())

    def unblock(self, one: str, other: str) -> None:
        """End a partition."""
        self._blocked -= {(one, other), (other, one)}
        self._long_partitions += self._is_long(self._blocked_at.pop(frozenset((one, other)), self.world.time()))
        self._deliver_all()

    @property
    def long_partitions(self) -> int:
        """How many partitions of two hosts have lasted for a whole attempt to connect."""
        return self._long_partitions + sum(map(self._is_long, self._blocked_at.values()))

    def _is_long(self, began: float) -> bool:
        return self.world.time() - began >= _LONG_PARTITION_S

    def slow_down(self, source: str, target: str, factor: float) -> None:
        """Multiply the latency in one direction."""
        self._slow[source, target] = factor
        self.disturb(source, target)

    def disturb(self, one: str, other: str) -> None:
        """Note that what passes between two hosts may come late."""
        self.disturbed |= {(one, other), (other, one)}

    def heal(self) -> None:
        """End all partitions and slowness."""
        self._long_partitions = self.long_partitions
        self._blocked_at.clear()
        self._blocked.clear()
        self._slow.clear()
        self._deliver_all()

    def between(self, one: str, other: str) -> "list[Connection]":
        """Return the open connections between two hosts."""
        return [each for each in self.connections if {each.client.name, each.server.name} == {one, other}]

    def remove(self, node: Node, silent: bool) -> None:
        """Handle the end of a process: its connections break, at once or (`silent`, as by a power cut) by keepalive."""
        self.listeners = {address: each for address, each in self.listeners.items() if each.node is not node}
        for connection in list(self.connections):
            if not silent and node in (connection.client, connection.server):
                connection.cut()

    def _deliver_all(self) -> None:
        for connection in self.connections:
            for lane in connection.lanes:
                lane.resume()

    async def _check_keepalive(self) -> None:
        while True:
            await asyncio.sleep(_KEEPALIVE_CHECK_S)
            for connection in list(self.connections):
                connection.check_keepalive()


class Lane:
    """One direction of a connection: first in, first out."""

    def __init__(
        self,
        network: Network,
        source: Node,
        target: Node,
        deliver: Callable[..., None],
        describe: Callable[..., str],
    ) -> None:
        """`describe` returns what a message says, for readers of a log."""
        self.source = source
        self.target = target
        self.queue: deque[tuple[float, tuple[object, ...]]] = deque()
        self.closed = False
        self._network = network
        self._deliver = deliver
        self._describe = describe
        self._name = f"{source.name}>{target.name}"
        self._last_at = 0.0
        self.held_until = 0.0
        """Nothing is delivered before this time."""
        self._armed = False

    def send(self, *message: object) -> None:
        """Send a message; it arrives after all earlier ones, or never."""
        if self.closed:
            return
        at = self._network.world.time() + self._network.latency(self.source, self.target)
        self._last_at = max(self._last_at, at)
        self.queue.append((self._last_at, message))
        if not self._armed:
            self._arm(self._last_at)

    def hold(self, until: float) -> None:
        """Deliver nothing before a time of the world; one that was to last for longer does."""
        self.held_until = max(self.held_until, until)
        self._network.disturb(self.source.name, self.target.name)

    def resume(self) -> None:
        """Deliver again after a block."""
        if self.queue and not self._armed:
            self._arm(self.queue[0][0])

    def _arm(self, at: float) -> None:
        self._armed = True
        self._network.world.call_at(max(at, self.held_until), self._on_due, context=self.target.context)

    def _on_due(self) -> None:
        self._armed = False
        network = self._network
        if network.is_blocked(self.source, self.target):
            return  # `resume` goes on
        now = network.world.time()
        if now >= self.held_until:
            while self.queue and self.queue[0][0] <= now:
                message = self.queue.popleft()[1]
                network.world.note_message(self._name, message, self._describe)
                self._deliver(*message)
        self.resume()


class Connection:
    """A connection from a client's process to a server's. It breaks as a whole, and each side notices by itself."""

    def __init__(self, network: Network, client: Node, server: Node) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.broken = False
        self.to_server = Lane(network, client, server, self.on_server_message, self.describe_request)
        self.to_client = Lane(network, server, client, self.on_client_message, self.describe_response)
        self.lanes = (self.to_server, self.to_client)
        self._passed_at = network.world.time()
        network.connections.append(self)

    def describe_request(self, *message: object) -> str:
        """Return what a message to the server says."""
        return " ".join(map(str, message))

    def describe_response(self, *message: object) -> str:
        """Return what a message to the client says."""
        return " ".join(map(str, message))

    def on_server_message(self, *message: object) -> None:
        """Handle a message at the server."""
        raise NotImplementedError

    def on_client_message(self, *message: object) -> None:
        """Handle a message at the client."""
        raise NotImplementedError

    def on_server_lost(self) -> None:
        """Handle the loss of the connection at the server."""
        raise NotImplementedError

    def on_client_lost(self) -> None:
        """Handle the loss of the connection at the client."""
        raise NotImplementedError

    @property
    def is_blocked(self) -> bool:
        """Whether nothing passes between its two sides."""
        return self.network.is_blocked(self.client, self.server)

    def close(self) -> None:
        """End a connection that neither side uses any more."""
        self.broken = True
        if self in self.network.connections:
            self.network.connections.remove(self)

    def cut(self) -> None:
        """Break the connection: what is under way arrives or not."""
        if self.broken:
            return
        self.close()
        network = self.network
        network.reached["connection cut"] += 1
        for lane, on_lost in ((self.to_client, self.on_client_lost), (self.to_server, self.on_server_lost)):
            lane.closed = True
            if network.random.random() < 0.5:
                lane.queue.clear()
            delay_s = network.random.random() * _NOTICE_S
            network.world.call_later(delay_s, self._notice, lane, on_lost, context=lane.target.context)

    def _notice(self, lane: Lane, on_lost: Callable[[], None]) -> None:
        lane.queue.clear()
        on_lost()

    def check_keepalive(self) -> None:
        """Break the connection if nothing has been able to pass for too long."""
        now, nodes = self.network.world.time(), (self.client, self.server)
        if not self.network.is_blocked(*nodes) and not any(each.dead or each.frozen for each in nodes):
            self._passed_at = now
        elif now - self._passed_at > _KEEPALIVE_S:
            self.cut()


def resolve(future: asyncio.Future[None] | None) -> None:
    """Wake what waits, if anything does."""
    if future is not None and not future.done():
        future.set_result(None)
