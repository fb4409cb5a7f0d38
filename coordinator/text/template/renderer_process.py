"""Renders requests' own templates in a child process, so that a crash or a kill affects no other work.

The sandbox stops most malicious templates, but not a value that contains itself a billion times.
"""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.errors import InvalidRequest

# Far more than any model's template; parsing takes time as well.
MAX_SOURCE = 256 * 1024

LENGTH = struct.Struct(">I")
"""Precedes each message in either direction; the message is JSON."""

READY = b""
"""The first message of the process."""

_START_S = 30.0
# The process detects most overruns itself, with a better message.
_GRACE_S = 2.0


class _ProcessLost(Exception):
    """The process or its pipes ended before a reply."""


class IsolatedRenderer:
    """One child process, started on first use and after each kill; renders one job at a time."""

    def __init__(self, limits: RenderLimits | None = None, memory_mb: int = 1024) -> None:
        self._limits = limits or RenderLimits()
        self._memory_mb = memory_mb
        self._lock = asyncio.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        """To and from the child."""

    async def render(self, template: str, job: Mapping[str, Any]) -> str:
        """Render messages by a request's template. Raises InvalidRequest."""
        if len(template) > MAX_SOURCE:
            raise InvalidRequest(
                f"chat_template must have at most {MAX_SOURCE} characters, got {len(template)}.", param="chat_template"
            )
        request = await asyncio.to_thread(_encode, {"template": template, **job})
        async with self._lock:
            reply = await self._exchange(request)
        if "text" in reply:
            return str(reply["text"])
        raise InvalidRequest(reply["message"], param=reply["param"])

    async def close(self) -> None:
        """Kill the process."""
        child, self._child = self._child, None
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
        if child is not None:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        try:
            return await self._ask(request)
        except _ProcessLost:
            # Not necessarily because of this job: the process may have been killed before. Retry once.
            try:
                return await self._ask(request)
            except _ProcessLost as error:
                raise _failed("needed too much memory, or crashed its renderer") from error

    async def _ask(self, request: bytes) -> dict[str, Any]:
        done = False
        try:
            reader, writer = await self._connected()
            async with asyncio.timeout(self._limits.seconds + _GRACE_S):
                writer.write(LENGTH.pack(len(request)) + request)
                await writer.drain()
                reply: dict[str, Any] = json.loads(await _read(reader))
            done = True
        except TimeoutError as error:
            raise _failed(f"took longer than {self._limits.seconds:g} seconds") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise _ProcessLost from error
        finally:
            # Also on cancellation: the rest of a reply would be read as the next one's.
            if not done:
                await self.close()
        return reply

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._is_alive():
            return self._streams
        await self.close()
        self._child, ours = _start(self._limits.seconds, self._limits.characters, self._memory_mb)
        reader, writer = self._streams = await asyncio.open_connection(sock=ours)
        # Python's start does not count as rendering time.
        try:
            async with asyncio.timeout(_START_S):
                await _read(reader)
        except TimeoutError as error:
            raise _ProcessLost from error
        return reader, writer

    def _is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None


def _start(*limits: float) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process; return it with a socket that is its standard input and output.

    Not by the event loop: uvloop forks, which runs handlers of gRPC in the child, and it died of SIGSEGV now and then.
    """
    command = [sys.executable, "-P", "-m", "tokenwire.coordinator.text.template.renderer_main", *map(str, limits)]
    ours, its = socket.socketpair()
    with its:
        return subprocess.Popen(command, stdin=its.fileno(), stdout=its.fileno()), ours


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


def _encode(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request).encode()


def _failed(what: str) -> InvalidRequest:
    return InvalidRequest(f"The chat template {what}.", param="chat_template")
