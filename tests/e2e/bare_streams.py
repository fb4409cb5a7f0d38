"""Chats on bare sockets, for clients that read as they like."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load import http_request
from tests.chunked import unchunk

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


class BareStream:
    """One request on a bare socket, so that nothing reads ahead."""

    def __init__(self, connection: socket.socket) -> None:
        self.data = bytearray()
        self._connection = connection

    @property
    def complete(self) -> bool:
        """Whether the body ended properly."""
        return self.data.endswith(b"\r\n0\r\n\r\n")

    async def read(self, size: int = 65536) -> bool:
        """Read once after others had a turn; return False if the server has closed the connection."""
        await asyncio.sleep(0)
        try:
            part = await asyncio.get_running_loop().sock_recv(self._connection, size)
        except ConnectionResetError:
            return False
        self.data += part
        return bool(part)

    def widen(self) -> None:
        """Enlarge the receive buffer."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)

    def reset_on_close(self) -> None:
        """Make the end of the block a reset."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def send_unread(url: str, body: dict[str, Any], path: str = CHAT, receive_buffer: int | None = None) -> socket.socket:
    """Send a request, by default a chat, and leave the response unread."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(http_request(url, path, {"messages": MESSAGES, **body} if path == CHAT else body))
    return connection


@asynccontextmanager
async def sent(
    address: tuple[str, int], body: dict[str, Any], receive_buffer: int | None = None
) -> AsyncIterator[BareStream]:
    """Connect and send a request; disconnect at the end."""
    with socket.socket() as connection:
        connection.setblocking(False)
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, address)
        host, port = address
        await loop.sock_sendall(connection, http_request(f"http://{host}:{port}", CHAT, {"messages": MESSAGES, **body}))
        yield BareStream(connection)


@dataclass(frozen=True, slots=True)
class BareReply:
    """A complete streamed reply."""

    texts: list[str]
    finish_reasons: list[str]
    completion_tokens: int


def parse_stream(data: bytearray, choices: int) -> BareReply:
    """Parse a full response; fail unless it is complete."""
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), data[:500]
    content, complete = unchunk(body)
    assert complete, data[-500:]
    events = content.split(b"\n\n")
    assert events[-2:] == [b"data: [DONE]", b""], data[-500:]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    texts, reasons = [""] * choices, [""] * choices
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert not reasons[choice["index"]], "text after the end"
            texts[choice["index"]] += choice["delta"].get("content") or ""
            reasons[choice["index"]] = choice["finish_reason"] or ""
    return BareReply(texts, reasons, chunks[-1]["usage"]["completion_tokens"])


def streamed_body(max_tokens: int, **fields: Any) -> dict[str, Any]:
    """Return a streamed request that counts its tokens."""
    return {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": max_tokens, **fields}
