"""The background client: it streams all the time, and notes when it got something."""

import asyncio
import contextlib
import socket
import time
from urllib.parse import urlsplit

from benchmarks.load import http_request

_LAST_BYTES = 2_000
"""Of a stream: its last chunks."""


class BackgroundClient:
    """Streams from its own model, one reply after the other."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._body = {"model": model, "prompt": "x", "max_tokens": 20_000, "stream": True, "ignore_eos": True}
        self.arrivals: list[float] = []
        """When data came, on the monotonic clock."""
        self.breaks = 0
        """How many of its streams ended early."""

    async def stream_forever(self) -> None:
        """Stream until cancelled."""
        while True:
            is_whole = False
            with contextlib.suppress(OSError):
                is_whole = await self._stream_once()
            if not is_whole:
                self.breaks += 1
                await asyncio.sleep(0.1)

    async def _stream_once(self) -> bool:
        """Return whether it came to its end."""
        parts = urlsplit(self._url)
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, (str(parts.hostname), int(parts.port or 80)))
            await loop.sock_sendall(client, http_request(self._url, "/v1/completions", self._body))
            last = b""
            while piece := await loop.sock_recv(client, 65536):
                self.arrivals.append(time.monotonic())
                last = (last + piece)[-_LAST_BYTES:]
                if last.endswith(b"0\r\n\r\n"):
                    break
        return b'"finish_reason":"length"' in last
