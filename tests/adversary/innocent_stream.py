"""An innocent client's stream, in a process of its own: what an attacker computes in this one does not hold it up.

`python -m tests.adversary.innocent_stream` is that process. Its input is JSON: url, headers and body.
"""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx


class Streamed(NamedTuple):
    """What came of a stream."""

    text: str
    is_whole: bool
    arrivals: list[float]
    """When something came, on the monotonic clock."""


class InnocentStream:
    """A stream that has begun."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._reading = asyncio.create_task(process.communicate())

    @classmethod
    async def begin(cls, url: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> "InnocentStream":
        """Begin to stream a completion; return once something has come."""
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-m", "tests.adversary.innocent_stream")
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"url": url, "headers": dict(headers), "body": body}).encode() + b"\n")
        await process.stdout.readline()
        return cls(process)

    @property
    def has_ended(self) -> bool:
        """Whether all of it has come, or it broke."""
        return self._reading.done()

    async def result(self) -> Streamed:
        """Wait for its end; return what came."""
        return Streamed(*json.loads((await self._reading)[0]))


def main() -> None:
    """Stream, and print a line once something came, and what came at the end."""
    request = json.loads(sys.stdin.readline())
    text, is_whole, arrivals = "", False, list[float]()
    with httpx.stream("POST", request["url"], headers=request["headers"], json=request["body"], timeout=60) as reply:
        for line in reply.iter_lines():
            if not arrivals:
                print("began", flush=True)
            arrivals.append(time.monotonic())
            is_whole = is_whole or line == "data: [DONE]"
            if line.startswith("data: {"):
                text += "".join(each["text"] for each in json.loads(line[6:]).get("choices", ()))
    print(json.dumps([text, is_whole, arrivals]))


if __name__ == "__main__":
    main()
