"""Sends attacks and reads their replies by bare sockets, so that the client costs little itself."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.adversary.attack import Attack

_PIECES = 20
_BETWEEN_PIECES_S = 0.05
_UNFINISHED_BYTES = 2**20
"""How many bytes that are never sent."""
_HOLD_S = 4.0
"""How long a body stays unfinished, and a reader stands still."""
_LEAVE_AFTER_S = 0.1
_HERE, ANOTHER_CLIENT = "127.0.0.1", "127.0.0.2"
"""Addresses of clients: without keys, each is a tenant."""
_BUFFER_BYTES = 2**16
"""Of each reader: what it reads is thrown away."""


@dataclass(slots=True)
class HostileReply:
    """What came of one request."""

    head: bytes = b""
    received: int = 0

    @property
    def status(self) -> int:
        """The HTTP status; 0: none."""
        return int(self.head[9:12]) if self.head.startswith(b"HTTP/1.1 ") else 0

    @property
    def beginning(self) -> str:
        """The first bytes of the body."""
        return self.head.partition(b"\r\n\r\n")[2].decode(errors="replace")


async def send_attack(
    url: str, attack: Attack, body: bytes, limit_s: float, address: str = _HERE
) -> list[HostileReply]:
    """Send all copies of an attack at once, without what is before it; return what came of them until the limit."""
    replies = [HostileReply() for _ in range(attack.copies)]
    await asyncio.gather(*[_send_copy(url, attack, body, limit_s, reply, address) for reply in replies])
    return replies


async def _send_copy(url: str, attack: Attack, body: bytes, limit_s: float, reply: HostileReply, address: str) -> None:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    unfinished = _UNFINISHED_BYTES if attack.sending == "never finished" else 0
    headers = "".join(f"{name}: {value}\r\n" for name, value in attack.headers.items())
    head = (
        f"{attack.method} {attack.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"{headers}Content-Length: {len(body) + unfinished}\r\nConnection: close\r\n\r\n"
    )
    with socket.socket() as client, contextlib.suppress(OSError, TimeoutError):
        client.bind((address, 0))
        client.setblocking(False)
        async with asyncio.timeout(limit_s):
            await loop.sock_connect(client, (str(parts.hostname), int(parts.port or 80)))
            sending = asyncio.create_task(_send_body(client, head.encode(), body, attack))
            try:
                if attack.reading == "leave at once":
                    await sending
                    await asyncio.sleep(_LEAVE_AFTER_S)
                elif attack.reading == "stand still":
                    await asyncio.wait([sending], timeout=_HOLD_S)
                    await asyncio.sleep(_HOLD_S)
                elif attack.sending == "never finished":
                    async with asyncio.timeout(_HOLD_S):
                        await _read(client, reply)
                else:
                    await _read(client, reply)
            finally:
                sending.cancel()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await sending


async def _send_body(client: socket.socket, head: bytes, body: bytes, attack: Attack) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, head)
    view = memoryview(body)
    size = len(body) // _PIECES + 1 if attack.sending == "in pieces" else max(1, len(body))
    for start in range(0, len(body), size):
        await loop.sock_sendall(client, view[start : start + size])
        if size < len(body):
            await asyncio.sleep(_BETWEEN_PIECES_S)


async def _read(client: socket.socket, reply: HostileReply) -> None:
    loop, buffer = asyncio.get_running_loop(), bytearray(_BUFFER_BYTES)
    while count := await loop.sock_recv_into(client, buffer):
        if len(reply.head) < 2_000:
            reply.head += bytes(buffer[: min(count, 2_000)])
        reply.received += count
