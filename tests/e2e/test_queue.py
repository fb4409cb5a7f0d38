"""The queue with real processes: lost workers, disconnects, and overload."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks import overload
from tests.e2e.bare_streams import send_unread
from tests.processes import Process, coordinator, running, simulated_service

CHAT = "/v1/chat/completions"
AWAY_S = float(os.environ.get("TOKENWIRE_TEST_AWAY_S", "1"))
"""How long the only worker is away."""


def in_background(url: str, count: int, **fields: Any) -> tuple[list[httpx.Response], Callable[[], None]]:
    """Send requests concurrently; return the list of their responses, and a function that waits for all."""
    answers: list[httpx.Response] = []
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40, "temperature": 0, **fields}
    threads = [
        threading.Thread(target=lambda: answers.append(httpx.post(url + CHAT, json=body, timeout=AWAY_S + 60)))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join()

    return answers, join


def test_requests_wait_for_a_lost_worker(folder: Path) -> None:
    """The only worker is killed and returns on its port: running and new requests are all served."""
    with ExitStack() as stack:
        first = Process(["worker", "--engine", "sim", "--listen", "127.0.0.1:0"], folder / "first.log")
        stack.callback(first.stop)
        address = first.wait_for(r"ready: .* on (\S+)")[1]
        process, url = stack.enter_context(coordinator(folder, [address]))
        full = httpx.post(url + CHAT, json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40})
        assert full.status_code == 200
        begun, join_begun = in_background(url, 5, max_tokens=400)
        first.wait_for("ready")
        os.kill(first.popen.pid, signal.SIGKILL)
        first.wait_exit()
        process.wait_for(r"session ended|lost")

        queued, join_queued = in_background(url, 10)
        time.sleep(AWAY_S)
        assert queued == []
        arguments = ["worker", "--engine", "sim", "--listen", address]
        stack.enter_context(running(arguments, folder, "second"))
        join_queued()
        join_begun()

    assert [answer.status_code for answer in begun + queued] == [200] * 15
    assert {answer.json()["usage"]["completion_tokens"] for answer in queued} == {40}
    assert {answer.json()["usage"]["completion_tokens"] for answer in begun} == {400}


def test_a_disconnect_leaves_the_queue(folder: Path) -> None:
    """Requests behind it move up, and nothing of it is left."""
    options = ("--sim-max-num-seqs", "1", "--sim-step-ms", "5")
    with simulated_service(folder, *options) as service:
        running_ones = [send_unread(service.url, {"stream": True, "max_tokens": 20_000}) for _ in range(3)]
        service.wait_slots(3)  # one runs, two are the worker's lead
        leaver = send_unread(service.url, {"stream": True, "max_tokens": 20_000})
        answers, join = in_background(service.url, 1)

        leaver.close()
        for connection in running_ones:
            connection.close()
        join()

        assert answers[0].status_code == 200
        service.wait_slots(0)


def test_an_abort_by_id_reaches_the_queue(folder: Path) -> None:
    """A queued request is returned as aborted, without output."""
    with simulated_service(folder, "--sim-max-num-seqs", "1") as service:
        taken = [send_unread(service.url, {"stream": True, "max_tokens": 20_000}) for _ in range(3)]
        service.wait_slots(3)
        answers, join = in_background(service.url, 1, request_id="mine")

        aborted = 0
        while not aborted:
            path = f"{service.url}/abort_requests"
            aborted = httpx.post(path, json={"request_ids": ["chatcmpl-mine"]}).json()["aborted"]
        join()

        (answer,) = answers
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["finish_reason"] == "abort"
        assert answer.json()["usage"]["completion_tokens"] == 0
        for connection in taken:
            connection.close()


def test_queueing_ends_with_a_status(folder: Path) -> None:
    """After its queue time a request is a 503, and with a full queue a 429, with Retry-After."""
    options = ["--queue-timeout", "0.3", "--max-queue", "1"]
    with simulated_service(folder, "--sim-max-num-seqs", "1", coordinator_options=options) as service:
        taken = [send_unread(service.url, {"stream": True, "max_tokens": 20_000}) for _ in range(3)]
        service.wait_slots(3)

        answers, join = in_background(service.url, 2)
        join()

        assert sorted(answer.status_code for answer in answers) == [429, 503]
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
        for connection in taken:
            connection.close()


@pytest.mark.slow
def test_overload_breaks_no_reply() -> None:
    """With ten times the load, admitted requests get full replies, and every rejection has Retry-After."""
    measured = overload.run(seconds=3.0)

    assert {200, 429} <= measured["statuses"].keys() <= {200, 429, 503}
    assert measured["rejected_without_retry_after"] == 0
    assert measured["incomplete"] == 0
