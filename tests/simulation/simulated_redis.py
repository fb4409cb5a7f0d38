"""A Redis that coordinators share: answers the commands of their real client over the simulated network, and fails.

It parses stored turns by itself, so that it can say which conversations it holds.
"""

import random
from collections.abc import Iterator, Sequence

from tests.simulation.network import Network
from tests.simulation.streams import StreamConnection
from tests.simulation.world import Node, World

HOST, PORT = "10.0.1.1", 6379
NAME = "redis"

_PREFIX = b"tokenwire:history:1:"
_NAME_BYTES = 16
_HEAD_BYTES, _REASONING_BYTES = 2, 21
_ERRORS = (
    b"LOADING Redis is loading the dataset in memory",
    b"OOM command not allowed when used memory > 'maxmemory'.",
    b"READONLY You can't write against a read only replica.",
)
"""What a Redis answers that starts, is full, or has become a replica; the last two to writes only."""
_WRITES = {b"SET"}


class SimulatedRedis:
    """A host where Redis runs, which keeps nothing on disk."""

    def __init__(self, world: World, network: Network) -> None:
        self.address = f"{HOST}:{PORT}"
        self.url = f"redis://{self.address}/0"
        self.error = b""
        """What it answers instead of a result; empty: nothing."""
        self._entries: dict[bytes, tuple[bytes, float]] = {}
        """Values and when they expire, by key."""
        self._random = random.Random(f"{world.seed} redis")
        self._world = world
        self._network = network
        self.failing = 0
        """Faults that have not ended."""
        self.failed_at = 0.0
        """When the last one ended."""
        self._evicted_at: dict[bytes, float] = {}
        """When each conversation was last evicted, whole or in part, by its ids."""
        self.node = self._boot()

    # Its process and its faults.

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return not self.node.dead

    def start(self) -> None:
        """Start a process, if there is none."""
        if not self.is_running:
            self.node = self._boot()

    def _boot(self) -> Node:
        self._entries.clear()
        self._network.listeners[self.address] = self
        return self._world.node(NAME)

    def kill(self) -> None:
        """End the process: connections break, and new ones are refused."""
        self.node.kill()
        self._network.remove(self.node, silent=False)

    def fail(self) -> None:
        """Answer with an error from now on."""
        self.error = self._random.choice(_ERRORS)

    def succeed(self) -> None:
        """Answer with results again."""
        self.error = b""

    def evict(self, share: float) -> int:
        """Lose about such a share of the entries; return their number."""
        lost = [key for key in self._entries if self._random.random() < share]
        held = dict(self._conversations())
        for key in lost:
            del self._entries[key]
        kept = dict(self._conversations())
        self._evicted_at.update((ids, self._world.time()) for key, ids in held.items() if key not in kept)
        return len(lost)

    def worked_since(self, time: float) -> bool:
        """Return whether it has answered as it should since then."""
        return not self.failing and self.failed_at < time

    # What it holds.

    def expiry(self, token_ids: Sequence[int]) -> float:
        """Return when a stored conversation of exactly these ids expires; 0: it holds none."""
        packed = _packed(token_ids)
        return max((self._entries[key][1] for key, ids in self._conversations() if ids == packed), default=0.0)

    def evicted_since(self, time: float, token_ids: Sequence[int]) -> bool:
        """Return whether it has evicted a part of a conversation of exactly these ids since then."""
        return self._evicted_at.get(_packed(token_ids), -1.0) >= time

    def _conversations(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key of each conversation that it holds, and its ids."""
        for key, (value, _) in list(self._entries.items()):
            names = [_PREFIX + value[at : at + _NAME_BYTES] for at in range(0, len(value), _NAME_BYTES)]
            turns = [self._get(name) for name in names]
            if names and None not in turns:
                yield key, b"".join(_ids(turn) for turn in turns if turn is not None)

    def _get(self, key: bytes) -> bytes | None:
        value, expires = self._entries.get(key, (None, 0.0))
        return value if expires > self._world.time() else None

    # Its protocol, RESP 2 and 3.

    def on_data(self, connection: StreamConnection, data: bytes) -> None:
        """Take bytes of a client, and answer each command that they complete."""
        connection.received += data
        answers = b"".join(self._answer(command) for command in _commands(connection.received))
        if answers:
            connection.send(answers)

    def _answer(self, command: list[bytes]) -> bytes:
        name, *args = command
        name = name.upper()
        if self.error and args and args[0].startswith(_PREFIX) and (name in _WRITES or self.error is _ERRORS[0]):
            self._network.reached["store answered with an error"] += 1
            return b"-%s\r\n" % self.error
        match name:
            case b"HELLO":
                return b"%2\r\n" + _bulk(b"server") + _bulk(b"redis") + _bulk(b"proto") + b":3\r\n"
            case b"CLIENT" if args[0].upper() == b"SETINFO":
                return b"+OK\r\n"
            case b"CLIENT":
                return b"-ERR unknown subcommand\r\n"
            case b"MGET":
                return b"*%d\r\n" % len(args) + b"".join(_bulk(self._get(key)) for key in args)
            case b"GETEX":
                value = self._get(args[0])
                self._expire(args[0], args[2])
                return _bulk(value)
            case b"EXPIRE":
                return b":%d\r\n" % self._expire(args[0], args[1])
            case b"SET":
                self._entries[args[0]] = (args[1], self._world.time() + int(args[3]))
                return b"+OK\r\n"
        raise NotImplementedError(name)

    def _expire(self, key: bytes, ttl: bytes) -> bool:
        value = self._get(key)
        if value is not None:
            self._entries[key] = (value, self._world.time() + int(ttl))
        return value is not None


def _packed(token_ids: Sequence[int]) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in token_ids)


def _ids(turn: bytes) -> bytes:
    return turn[_HEAD_BYTES + turn[1] * _REASONING_BYTES :] if len(turn) >= _HEAD_BYTES else b""


def _bulk(value: bytes | None) -> bytes:
    return b"_\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


def _commands(received: bytearray) -> Iterator[list[bytes]]:
    """Take complete commands off the bytes received."""
    while (found := _parse(received)) is not None:
        command, size = found
        del received[:size]
        yield command


def _parse(received: bytearray) -> tuple[list[bytes], int] | None:
    """Return the first command, and its size; None while it is incomplete."""
    end = received.find(b"\r\n")
    if end < 0:
        return None
    parts: list[bytes] = []
    for _ in range(int(received[1:end])):
        start = end + 2
        end = received.find(b"\r\n", start)
        if end < 0:
            return None
        size = int(received[start + 1 : end])
        start, end = end + 2, end + 2 + size
        if len(received) < end + 2:
            return None
        parts.append(bytes(received[start:end]))
    return parts, end + 2
