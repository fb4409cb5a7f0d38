"""One kind of request on two real vLLM workers, one of which is killed; test_real_engine.py has every kind."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.servers import ENGINE_ARGUMENTS, START_TIMEOUT_S, lean_environment
from tests.faults.test_real_engine import announce, ask
from tests.processes import Process, coordinator, running
from tests.tiny_model import tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SEEDED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about the sea."}],
    "max_tokens": 60,
    "ignore_eos": True,
    "temperature": 0.8,
    "seed": 7,
    "presence_penalty": 0.5,
    "return_token_ids": True,
    "stream": True,
}
"""What only a replay gives once more: a generator, and a penalty on what was said."""


async def test_a_seeded_reply_of_a_killed_worker_goes_on(tmp_path: Path) -> None:
    """Its text and ids are those of an undisturbed run."""
    with ExitStack() as stack:
        workers: list[Process] = []
        for number in range(2):
            listen = f"unix:{tmp_path}/{number}.sock"
            arguments = ["worker", str(tiny_model()), "--listen", listen, "--no-warm-up", "--", *ENGINE_ARGUMENTS]
            name, binding = f"worker-{number}", lean_environment(first=not number)
            workers.append(stack.enter_context(running(arguments, tmp_path, name, binding)))
        for worker in workers:
            await asyncio.to_thread(worker.wait_for, r"ready: .* on (\S+)", START_TIMEOUT_S)
        announce(tmp_path, 1)
        process, url = stack.enter_context(coordinator(tmp_path, [f"file:{tmp_path}/workers"], start_timeout_s=60))
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            undisturbed = await ask(client, SEEDED, asyncio.Event())
            announce(tmp_path, 0)
            await asyncio.to_thread(process.wait_for, r"worker unix:\S+/1.sock removed")
            begun = asyncio.Event()
            asked = asyncio.create_task(ask(client, SEEDED, begun))
            await begun.wait()
            announce(tmp_path, 0, 1)
            await asyncio.to_thread(process.wait_for, r"(?s)removed.*worker unix:\S+/1.sock: .*, ready")
            assert not asked.done()
            os.killpg(workers[0].popen.pid, signal.SIGKILL)
            answer = await asked

    assert answer.exact == undisturbed.exact
