"""Bar: two real vLLM workers, one is killed in mid-reply, and the replies do not show it."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.servers import ENGINE_ARGUMENTS, START_TIMEOUT_S, environment
from tests.faults.long_replies import CASES, LONG, STORY, all_answers, announce, late_piece, start_answers
from tests.processes import Process, coordinator, running

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for logs."""
    return tmp_path_factory.mktemp("failover")


@pytest.fixture(scope="module")
def workers(place: Path) -> Iterator[list[Process]]:
    """Two workers, started one after the other: both at once take longer than that."""
    with ExitStack() as stack:
        started = []
        for number in range(2):
            arguments = ["worker", "--listen", f"unix:{place}/{number}.sock", "--", *ENGINE_ARGUMENTS]
            worker = stack.enter_context(running(arguments, place, f"worker-{number}", environment(first=not number)))
            worker.wait_for(r"ready: .* on (\S+)", START_TIMEOUT_S)
            started.append(worker)
        yield started


async def test_nobody_notices_a_killed_worker(place: Path, workers: list[Process]) -> None:
    """Streamed or not, with logprobs, a stop string, a tool call, seeds and penalties: ids and text are the same."""
    addresses = [f"unix:{place}/{number}.sock" for number in range(2)]
    announce(place, addresses[0])
    options = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    with coordinator(place, [f"file:{place}/workers"], *options, start_timeout_s=60) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            undisturbed = await all_answers(client, CASES)
            stop = late_piece(undisturbed["streamed"].text[0])
            stopped = {"messages": STORY, **LONG, "stop": [stop]}
            cases = {**CASES, "stop string": stopped, "streamed stop string": {**stopped, "stream": True}}
            undisturbed |= await all_answers(client, {name: cases[name] for name in cases if "stop" in name})
            assert undisturbed["stop string"].stop_reason == stop

            begun = [asyncio.Event() for _ in cases]
            requests = start_answers(client, cases, begun)
            await asyncio.gather(*(event.wait() for event in begun))
            announce(place, *addresses)
            await asyncio.to_thread(process.wait_for, r"worker unix:\S+/1.sock: .*, ready")
            assert not [name for name, task in requests.items() if task.done()]
            os.killpg(workers[0].popen.pid, signal.SIGKILL)
            answers = {name: await task for name, task in requests.items()}

    assert int(re.findall(r"lost: resuming (\d+) sequence\(s\) elsewhere", process.log)[0]) >= len(cases)
    assert "has made no step" not in process.log
    assert "silent" not in process.log
    wrong = [name for name in cases if answers[name].exact != undisturbed[name].exact]
    assert not wrong, [(answers[name].exact, undisturbed[name].exact) for name in wrong]
    for name in cases:
        values = [
            [(entry["logprob"], before["logprob"])]
            + [(new["logprob"], old["logprob"]) for new, old in zip(*_tops(entry, before), strict=True)]
            for entry, before in zip(answers[name].logprobs, undisturbed[name].logprobs, strict=True)
        ]
        assert all(abs(new - old) < 1e-3 for row in values for new, old in row)


def _tops(*entries: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [entry["top_logprobs"] for entry in entries]
