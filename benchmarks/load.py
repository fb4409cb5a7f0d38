"""A load generator for streamed completions: raw sockets, to cost less than what is measured."""

import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit


@dataclass(slots=True)
class StreamResult:
    """The result of one streamed request. Times are in seconds on the monotonic clock."""

    started: float
    status: int = 0
    arrivals: list[float] = field(default_factory=list)
    """When data came; a read that carried several events counts once."""
    events: int = 0
    """Server-sent events, without the final [DONE]."""
    completion_tokens: int = 0
    finish_reason: str | None = None
    retry_after: str | None = None
    """The Retry-After of a rejection."""
    complete: bool = False
    """Whether the stream ended with [DONE]."""
    body: bytearray | None = None
    """What came after the head, in its chunks, if it is kept."""

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the request to the first data."""
        return self.arrivals[0] - self.started if self.arrivals else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between arrivals."""
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


class _StreamClient(asyncio.Protocol):
    """Reads one response: counts events, parses only the last ones."""

    _TAIL = 2048
    # At the start of a line: inside an event's JSON there are no line breaks.
    _EVENT = b"\ndata: "

    def __init__(self, request: bytes, done: "asyncio.Future[StreamResult]", keep_body: bool) -> None:
        self._request = request
        self._done = done
        self._result = StreamResult(started=0.0, body=bytearray() if keep_body else None)
        self._head: bytearray | None = bytearray()
        self._tail = b"\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._result.started = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        result = self._result
        if self._head is not None:
            self._head += data
            head, separator, rest = bytes(self._head).partition(b"\r\n\r\n")
            if not separator:
                return
            self._head = None
            result.status = int(head[9:12])
            if result.status != 200:
                result.retry_after = _header(head, b"retry-after")
            data = rest
            if not data:
                if result.status != 200:  # a body may never come
                    self._finish()
                return
        result.arrivals.append(time.monotonic())
        if result.body is not None:
            result.body += data
        # An event may be cut in two: its beginning is counted across the seam.
        result.events += (self._tail[1 - len(self._EVENT) :] + data).count(self._EVENT)
        self._tail = (self._tail + data)[-self._TAIL :]
        if result.status != 200 or self._tail.endswith(b"0\r\n\r\n"):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._done.done():
            return
        result = self._result
        tail = self._tail.decode(errors="replace")
        result.complete = "\ndata: [DONE]" in tail
        result.events -= result.complete
        result.completion_tokens = _last_number(tail, '"completion_tokens":')
        marker = '"finish_reason":"'
        if marker in tail:
            result.finish_reason = tail.rpartition(marker)[2].partition('"')[0]
        self._transport.close()
        self._done.set_result(result)


def _last_number(text: str, marker: str) -> int:
    digits = text.rpartition(marker)[2].lstrip() if marker in text else ""
    length = next((i for i, character in enumerate(digits) if not character.isdigit()), len(digits))
    return int(digits[:length] or 0)


def _header(head: bytes, name: bytes) -> str | None:
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.lower() == name:
            return value.strip().decode("latin-1")
    return None


def http_request(url: str, path: str, body: Mapping[str, Any]) -> bytes:
    """Render a POST request."""
    payload = json.dumps(body).encode()
    host = urlsplit(url).netloc
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload


async def stream(url: str, request: bytes, keep_body: bool = False) -> StreamResult:
    """Send a rendered request and read its stream to the end. Raises OSError if the port is closed."""
    loop = asyncio.get_running_loop()
    parts = urlsplit(url)
    done: asyncio.Future[StreamResult] = loop.create_future()
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    await loop.create_connection(lambda: _StreamClient(request, done, keep_body), host, port)
    return await done


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile, 0 for no values."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
