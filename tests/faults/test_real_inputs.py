"""Bar: a real vLLM worker is killed under pictures in every stage, or amid batches to embed; no reply shows it."""

import asyncio
import re
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.conformance.picture_chats import drawn_picture, user_message
from tests.conformance.servers import ENGINE_ARGUMENTS, START_TIMEOUT_S, lean_environment
from tests.faults.long_replies import all_answers, announce, start_answers
from tests.processes import Process, Service, coordinator, running, wait_routable, worker_metrics
from tests.vision_model.model import vision_model
from tests.workers import until

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]

_OPTIONS = ("--max-model-len", "4096", "--max-num-batched-tokens", "512", "--limit-mm-per-prompt", '{"image": 3}')
_TEXTS, _BATCHES = 100, 4
_WAITING = "tokenwire_worker_media_waiting"
_SCORED = {"temperature": 0, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}


@contextmanager
def two_workers(folder: Path, *arguments: str) -> Iterator[tuple[list[Process], list[str]]]:
    """Run two workers, started one after the other; yields them and their addresses."""
    addresses = [f"unix:{folder}/{number}.sock" for number in range(2)]
    with ExitStack() as stack:
        workers = []
        for number, address in enumerate(addresses):
            command = ["worker", "--listen", address, *arguments]
            environment = lean_environment(first=not number)
            workers.append(stack.enter_context(running(command, folder, f"worker-{number}", environment)))
            workers[-1].wait_for(r"ready: .* on (\S+)", START_TIMEOUT_S)
            stack.callback(kill_all, psutil.Process(workers[-1].popen.pid).children(recursive=True))
        yield workers, addresses


def kill_all(processes: Sequence[psutil.Process]) -> None:
    """Kill those that are left: vLLM's engine core outlives a worker that is killed."""
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()


def requests() -> dict[str, dict[str, Any]]:
    """Return those of each stage, in the order in which they are sent; the first one's pictures are in all of them."""
    seen = user_message(drawn_picture("JPEG"), "and", drawn_picture("PNG", seed=2), "differ?")
    new = user_message(drawn_picture("PNG", seed=3), "And this?")
    turns = [seen, {"role": "assistant", "content": "Yes."}]
    return {
        "in mid-reply": {"messages": [seen], "max_tokens": 1500, "ignore_eos": True, "stream": True, **_SCORED},
        "processing": {"messages": [*turns, new], "max_tokens": 40, **_SCORED},
        # As many as have to be sent for one to come to the worker.
        **{
            f"in prefill {number}": {"messages": [*turns, user_message(text)], "max_tokens": 40, **_SCORED}
            for number, text in enumerate(f"{number} Why? " * 600 for number in range(4))
        },
    }


async def test_nobody_notices_a_worker_killed_under_pictures(tmp_path: Path) -> None:
    """Ids, text, usage and log-probabilities are those of an undisturbed run, and no process is left of the worker."""
    with ExitStack() as stack:
        arguments = (str(vision_model()), "--", *ENGINE_ARGUMENTS, *_OPTIONS)
        workers, (doomed, other) = stack.enter_context(two_workers(tmp_path, *arguments))
        announce(tmp_path, doomed)
        listed = f"file:{tmp_path}/workers"
        process, url = stack.enter_context(coordinator(tmp_path, [listed], start_timeout_s=60))
        service = Service(process, url, workers, [doomed, other])
        async with httpx.AsyncClient(base_url=url, timeout=300) as client:
            cases = requests()
            names, begun = list(cases), [asyncio.Event() for _ in cases]
            sent = start_answers(client, {names[0]: cases[names[0]]}, begun[:1])
            await begun[0].wait()
            processors = suspend_processors(workers[0])
            announce(tmp_path, doomed, other)
            await asyncio.to_thread(process.wait_for, rf"worker {other}: .*, ready")
            sent |= start_answers(client, {names[1]: cases[names[1]]}, begun[1:2])
            await until(lambda: worker_metrics(doomed, _WAITING)[_WAITING] == 1)
            for index, name in enumerate(names[2:], 2):
                sent |= start_answers(client, {name: cases[name]}, begun[index : index + 1])
            await until(lambda: service.server_info().open_slots > 1)
            workers[0].signal(signal.SIGKILL)
            assert not any(sent[name].done() for name in names[:2])
            for each in processors:
                each.resume()
            answers = {name: await task for name, task in sent.items()}
            undisturbed = await all_answers(client, cases)

    assert int(re.findall(r"resuming (\d+) sequence\(s\) elsewhere", process.log)[0]) > 1
    assert "cannot expand a prompt" in process.log
    for name in cases:
        assert answers[name].exact == undisturbed[name].exact, name
        scores = [[entry["logprob"] for entry in each[name].logprobs] for each in (answers, undisturbed)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3), name
    assert not psutil.wait_procs(processors, timeout=30)[1]


def suspend_processors(worker: Process) -> list[psutil.Process]:
    """Let a worker's processes of media stand still, and return them."""
    family = psutil.Process(worker.popen.pid).children()
    (server,) = [each for each in family if "tokenwire.worker.media.fork_server" in each.cmdline()]
    found = [server, *server.children()]
    for each in found:
        each.suspend()
    return found


def test_nobody_notices_a_worker_killed_amid_batches(tmp_path: Path) -> None:
    """It has computed some inputs, and not the others: all vectors are those of an undisturbed run."""
    texts = [f"number {number}: {'word ' * (number % 40)}" for number in range(_TEXTS)]
    with ExitStack() as stack:
        arguments = ("--demo", "embeddings", "--", "--dtype", "float32", "--enforce-eager")
        workers, addresses = stack.enter_context(two_workers(tmp_path, *arguments))
        process, url = stack.enter_context(coordinator(tmp_path, addresses, start_timeout_s=60))
        wait_routable(url, 2)
        service = Service(process, url, workers, addresses)
        client = stack.enter_context(httpx.Client(base_url=url, timeout=300))
        undisturbed = batch_vectors(client, texts)
        threads = stack.enter_context(ThreadPoolExecutor(_BATCHES))
        sent = [threads.submit(batch_vectors, client, texts) for _ in range(_BATCHES)]
        slots = most = 0
        while not 0 < slots < most:
            assert not all(each.done() for each in sent)
            slots = service.server_info().open_slots
            most = max(slots, most)
        workers[0].signal(signal.SIGKILL)
        assert [each.result() for each in sent] == [undisturbed] * _BATCHES
        assert "sequence(s) elsewhere" in process.log


def batch_vectors(client: httpx.Client, texts: list[str]) -> list[str]:
    """Return the vectors of a batch, in base64."""
    response = client.post("/v1/embeddings", json={"input": texts, "encoding_format": "base64"})
    assert response.status_code == 200, response.text
    return [each["embedding"] for each in response.json()["data"]]
