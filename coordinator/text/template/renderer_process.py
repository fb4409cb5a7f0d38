"""Renders requests' own templates in a child process, so that a crash or a kill affects no other work.

The sandbox stops most malicious templates, but not a value that contains itself a billion times.
"""

import asyncio
import json
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
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
        self._pipes: _Pipes | None = None

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
        pipes, self._pipes = self._pipes, None
        if pipes is not None:
            pipes.close()
        if child is not None:
            child.kill()
            await asyncio.to_thread(child.wait)

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        try:
            return await self._call(request)
        except _ProcessLost:
            # Not necessarily because of this job: the process may have been killed before. Retry once.
            try:
                return await self._call(request)
            except _ProcessLost as error:
                raise _failed("needed too much memory, or crashed its renderer") from error

    async def _call(self, request: bytes) -> dict[str, Any]:
        done = False
        try:
            pipes = await self._connect()
            async with asyncio.timeout(self._limits.seconds + _GRACE_S):
                pipes.input.write(LENGTH.pack(len(request)) + request)
                reply: dict[str, Any] = json.loads(await _read(pipes.reader))
            done = True
        except TimeoutError as error:
            raise _failed(f"took longer than {self._limits.seconds:g} seconds") from error
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError) as error:
            # uvloop raises RuntimeError if the pipe to a process is closed.
            raise _ProcessLost from error
        finally:
            # Also on cancellation: the rest of a reply would be read as the next one's.
            if not done:
                await self.close()
        return reply

    async def _connect(self) -> "_Pipes":
        if self._pipes is not None and self._is_alive(self._pipes):
            return self._pipes
        await self.close()
        self._child = _start(self._limits.seconds, self._limits.characters, self._memory_mb)
        pipes = self._pipes = await _Pipes.of(self._child)
        # Python's start does not count as rendering time.
        try:
            async with asyncio.timeout(_START_S):
                await _read(pipes.reader)
        except TimeoutError as error:
            raise _ProcessLost from error
        return pipes

    def _is_alive(self, pipes: "_Pipes") -> bool:
        # A child that died of its last job closes its pipe before its exit code is collected.
        return self._child is not None and self._child.poll() is None and not pipes.input.is_closing()


@dataclass(frozen=True, slots=True)
class _Pipes:
    """The standard input and output of a process."""

    input: asyncio.WriteTransport
    output: asyncio.ReadTransport
    reader: asyncio.StreamReader
    """Reads the output."""

    @classmethod
    async def of(cls, child: subprocess.Popen[bytes]) -> "_Pipes":
        """Connect the event loop to a process."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        output, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), child.stdout)
        input_, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, child.stdin)
        return cls(input_, output, reader)

    def close(self) -> None:
        self.input.close()
        self.output.close()


def _start(*limits: float) -> subprocess.Popen[bytes]:
    """Start a process.

    Not by the event loop: uvloop forks, which runs handlers of gRPC in the child, and it died of SIGSEGV now and then.
    """
    command = [sys.executable, "-P", "-m", "tokenwire.coordinator.text.template.renderer_main", *map(str, limits)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


def _encode(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request).encode()


def _failed(what: str) -> InvalidRequest:
    return InvalidRequest(f"The chat template {what}.", param="chat_template")
