"""A process that answers a line with a line: work that cannot be interrupted, but whose process can be killed."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence

log = logging.getLogger(__name__)

_LONGEST_ANSWER = 64 * 1024 * 1024


class LineProcess:
    """Answers one line at a time: who calls it waits for the answer before it calls again."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended since."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process, without GPUs and out of reach of Ctrl-C, which is for the worker."""
        await self.close()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_ANSWER,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )

    async def ask(self, line: str, limit_s: float | None = None) -> bytes:
        """Return the answer to a line, with its newline; nothing if none came in time, and then the process is gone."""
        assert self._process is not None
        answer = b""
        try:
            async with asyncio.timeout(limit_s):
                answer = await _exchange(self._process, line)
        except TimeoutError:
            pass
        finally:
            if not answer:
                await self.close()
        return answer

    async def close(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is not None:
                log.warning("process %d has ended by itself (exit status %d)", process.pid, process.returncode)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


async def _exchange(process: asyncio.subprocess.Process, line: str) -> bytes:
    """Return the answer to a line, empty if the process ends before all of it was written."""
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdin.is_closing():  # the process has ended, or is about to
        return b""
    try:
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
        answer = await process.stdout.readline()
    except ConnectionError:
        return b""
    return answer if answer.endswith(b"\n") else b""
