"""One kind of request on two real vLLM workers, one of which is killed; faults/test_real_engine.py has every kind."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.servers import child
from tests.faults.long_replies import announce, answer_to
from tests.processes import Service, coordinator

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SEEDED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story about the sea."}],
    "max_tokens": 200,
    "ignore_eos": True,
    "temperature": 0.8,
    "seed": 7,
    "presence_penalty": 0.5,
    "return_token_ids": True,
    "stream": True,
}
"""What only a replay gives once more: a generator, and a penalty on earlier output."""
PATIENT = ("--heartbeat-timeout", "60", "--engine-stall-timeout", "60")
"""A coordinator that does not notice for a while that a worker was stopped."""


async def test_a_seeded_reply_of_a_killed_worker_goes_on(real: Service, trainable: Service, tmp_path: Path) -> None:
    """Its text and ids are those of an undisturbed run."""
    worker = child(real.coordinator, "worker")
    doomed, other = real.addresses[0], trainable.addresses[0]
    announce(tmp_path, other)
    with coordinator(tmp_path, [f"file:{tmp_path}/workers"], *PATIENT, start_timeout_s=60) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            undisturbed = await answer_to(client, SEEDED, asyncio.Event())
            announce(tmp_path, doomed)
            await asyncio.to_thread(process.wait_for, rf"worker {other} removed")
            begun = asyncio.Event()
            requests = asyncio.create_task(answer_to(client, SEEDED, begun))
            await begun.wait()
            family = [worker, *worker.children(recursive=True)]
            for each in family:
                each.suspend()
            announce(tmp_path, doomed, other)
            await asyncio.to_thread(process.wait_for, rf"(?s)removed.*worker {other}: .*, ready")
            assert not requests.done()
            for each in family:
                each.kill()
            answer = await requests

    assert answer.exact == undisturbed.exact
