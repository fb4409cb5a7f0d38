"""Kill a worker with SIGKILL while 40 replies stream, and see that none is lost or changed.

Starts its own fleet on this machine: a coordinator and two workers with simulated engines, which need no model. On two
GPUs the same holds for real engines: start the workers with a model instead of `--engine sim`.
"""

import asyncio
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from typing import Any

from openai import AsyncOpenAI

STREAMS, TOKENS = 40, 200


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start a tokenwire process; its log is read from stderr."""
    command = [sys.executable, "-m", "tokenwire", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    """Return what the pattern's group matches in the process's output; the rest of the output is discarded."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return found[1]
    raise SystemExit("a process ended too early")


async def stream(client: AsyncOpenAI, prompt: str, halfway: asyncio.Event) -> str:
    """Return one streamed reply."""
    parts = []
    body: dict[str, Any] = {"ignore_eos": True}
    chunks = await client.completions.create(
        model="simulated", prompt=prompt, max_tokens=TOKENS, stream=True, extra_body=body
    )
    async for chunk in chunks:
        parts.append(chunk.choices[0].text)
        if len(parts) == TOKENS // 2:
            halfway.set()
    return "".join(parts)


async def run(url: str, victim: subprocess.Popen[str]) -> None:
    """Read all replies undisturbed, then again with a crash halfway, and compare."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        prompts = [f"Story number {number}" for number in range(STREAMS)]
        halfway = asyncio.Event()
        undisturbed = await asyncio.gather(*(stream(client, prompt, halfway) for prompt in prompts))
        halfway.clear()
        replies = asyncio.gather(*(stream(client, prompt, halfway) for prompt in prompts))
        await halfway.wait()
        victim.kill()
        print(f"killed worker {victim.pid} with SIGKILL while {STREAMS} replies were streaming")
        same = sum(one == other for one, other in zip(await replies, undisturbed, strict=True))
        print(f"{same} of {STREAMS} replies complete, and the same as without the crash")
        if same != STREAMS:
            raise SystemExit(1)


with tempfile.TemporaryDirectory() as sockets, ExitStack() as running:
    workers = []
    for name in ("a", "b"):
        address = f"unix:{sockets}/{name}"
        workers.append(start("worker", "--engine", "sim", "--sim-step-ms", "10", "--listen", address))
        running.callback(workers[-1].send_signal, signal.SIGTERM)
    for worker in workers:
        wait_for(worker, "(ready): ")
    coordinator = start("coordinator", "--port", "0", "--worker", f"unix:{sockets}/a", "--worker", f"unix:{sockets}/b")
    running.callback(coordinator.send_signal, signal.SIGTERM)
    asyncio.run(run(wait_for(coordinator, r"is ready: (\S+)"), workers[0]))
