"""A light client: keeps connections alive, knows when replies begin and end, and parses nothing else."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from httptools import HttpResponseParser

_TEXT = re.compile(rb'"(?:content|text)":"[^"]')
"""A token's text: SMG begins a stream with a chunk that has none."""


@dataclass(slots=True)
class Reply:
    """A reply. Times are in seconds on the monotonic clock."""

    sent: float
    first_token: float = 0.0
    """0 for a reply without text."""
    chunks: int = 0
    """Server-sent events with data."""
    parts: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.parts)


class Connection(asyncio.Protocol):
    """A connection that sends one request after the other."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._reply = Reply(0.0)
        self._done: asyncio.Future[Reply] | None = None

    @classmethod
    async def open(cls, url: str) -> "Connection":
        """Connect. Raises OSError."""
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, parts.hostname or "", parts.port or 80)
        return connection

    async def send(self, request: bytes) -> Reply:
        """Send a rendered request, and return its reply. Raises RuntimeError unless it is whole and a 200."""
        self._done = asyncio.get_running_loop().create_future()
        self._reply = Reply(time.monotonic())
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        """Close it."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(RuntimeError(f"the connection was lost: {exc}, {self._reply.body!r}"))

    def on_body(self, body: bytes) -> None:
        """Count a part of a reply."""
        reply = self._reply
        if not reply.first_token and _TEXT.search(body):
            reply.first_token = time.monotonic()
        reply.chunks += body.count(b"data: {")
        reply.parts.append(body)

    def on_message_complete(self) -> None:
        """End a reply."""
        reply, status = self._reply, self._parser.get_status_code()
        is_whole = not reply.chunks or b"data: [DONE]" in b"".join(reply.parts[-3:])
        self._end(None if status == 200 and is_whole else RuntimeError(f"{status}: {reply.body[-2000:]!r}"))

    def _end(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error:
            self._done.set_exception(error)
        else:
            self._done.set_result(self._reply)


def http_get(url: str, path: str) -> bytes:
    """Render a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode()


async def all_at_once(url: str, request: bytes, count: int) -> list[Reply]:
    """Send the same request so many times at once, each on a connection of its own."""

    async def send() -> Reply:
        connection = await Connection.open(url)
        reply = await connection.send(request)
        connection.close()
        return reply

    return await asyncio.gather(*(send() for _ in range(count)))


async def kept_alive(url: str, requests: Sequence[bytes], connections: int) -> list[Reply]:
    """Send requests over connections that stay open, in turn, each with one request at a time."""
    waiting = iter(requests)

    async def send() -> list[Reply]:
        connection = await Connection.open(url)
        replies = [await connection.send(request) for request in waiting]
        connection.close()
        return replies

    return [reply for replies in await asyncio.gather(*(send() for _ in range(connections))) for reply in replies]
