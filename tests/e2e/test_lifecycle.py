"""Processes that start late, stop, die, or run next to each other.

One file, since all are of one topic: each test starts processes of its own and looks at what the others do.
"""

import json
import os
import re
import signal
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from openai import APIStatusError, OpenAI

from tests.processes import (
    Process,
    Service,
    coordinator,
    running,
    simulated_service,
    simulated_worker,
    wait_healthy,
    wait_queued,
)

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = "/v1/chat/completions"


def test_a_worker_may_start_after_its_coordinator(folder: Path) -> None:
    """Until then the coordinator returns 503 with Retry-After."""
    address = f"unix:{folder}/late.sock"
    with coordinator(folder, [address], ready=False) as (process, url):
        early = httpx.post(url + CHAT, json={"messages": MESSAGES})
        assert early.status_code == 503
        assert int(early.headers["retry-after"]) >= 1
        assert httpx.get(f"{url}/health").status_code == 503

        with running(["worker", "--engine", "sim", "--listen", address], folder, "worker"):
            wait_healthy(url, process)

            assert httpx.post(url + CHAT, json={"messages": MESSAGES, "max_tokens": 2}).status_code == 200


def test_a_killed_worker_ends_its_streams_with_an_error_event(folder: Path) -> None:
    """kill -9 of one of two workers: its streams get an error event and [DONE], the other's are unaffected."""
    with (
        simulated_service(
            folder, "--sim-step-ms", "5", workers=2, coordinator_options=("--failover-attempts", "0")
        ) as service,
        httpx.Client(timeout=60) as client,
    ):
        body = {"messages": MESSAGES, "stream": True, "max_tokens": 500}
        with ExitStack() as stack:
            streams = [
                stack.enter_context(client.stream("POST", service.url + CHAT, json=body)).iter_text() for _ in range(4)
            ]
            begun = [next(stream) for stream in streams]  # before that an error would be a response of its own
            service.wait_slots(2, worker=0)
            service.wait_slots(2, worker=1)
            os.kill(service.workers[0].popen.pid, signal.SIGKILL)
            texts = [first + "".join(rest) for first, rest in zip(begun, streams, strict=True)]

        failed = [text for text in texts if '"error"' in text]
        assert len(failed) == 2
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert all('"code": 503' in text for text in failed)
        again = client.post(service.url + CHAT, json={**body, "stream": False, "max_tokens": 2})
        assert again.status_code == 200


def test_a_killed_worker_fails_full_replies_with_a_503(folder: Path) -> None:
    """Without failover, until the worker returns."""
    address = f"unix:{folder}/w.sock"
    arguments = ["worker", "--engine", "sim", "--listen", address]
    worker = Process(arguments, folder / "first.log")
    with coordinator(folder, [address], "--failover-attempts", "0") as (process, url):
        answers = []
        body = {"messages": MESSAGES, "max_tokens": 1000}
        thread = threading.Thread(target=lambda: answers.append(httpx.post(url + CHAT, json=body, timeout=60)))
        thread.start()
        worker.wait_for("ready")
        Service(process, url, [worker], [address]).wait_slots(1)
        os.kill(worker.popen.pid, signal.SIGKILL)
        worker.wait_exit()
        thread.join()

        assert answers[0].status_code == 503
        assert "was lost" in answers[0].json()["error"]["message"]
        with running(arguments, folder, "second"):
            wait_healthy(url, process)
            assert httpx.post(url + CHAT, json={"messages": MESSAGES, "max_tokens": 2}).status_code == 200


def test_an_engine_crash_ends_replies_and_the_worker(folder: Path) -> None:
    """If the only engine dies every reply gets an error, and the worker exits with code 1 so that it is restarted."""
    options = ("--failover-attempts", "0")
    with simulated_service(folder, "--sim-fault", "crash@tokens=50", coordinator_options=options) as service:
        response = httpx.post(service.url + CHAT, json={"messages": MESSAGES, "max_tokens": 500}, timeout=60)

        assert response.status_code in (500, 503)
        assert response.json()["error"]["message"]
        assert service.workers[0].wait_exit() == 1


def test_an_error_of_one_sequence_affects_no_other(folder: Path) -> None:
    """A request on which the engine fails gets a 500; the next one succeeds."""
    with simulated_service(folder, "--sim-fault", "error@request=1:after=3") as service:
        client = OpenAI(base_url=f"{service.url}/v1", api_key="x", max_retries=0)
        with pytest.raises(APIStatusError) as caught:
            client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=10)  # type: ignore[arg-type]
        assert caught.value.status_code == 500

        answer = client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=10)  # type: ignore[arg-type]

        assert answer.usage is not None
        assert answer.usage.completion_tokens == 10


def test_sigterm_lets_a_worker_finish_its_replies(folder: Path) -> None:
    """A draining worker rejects new requests, finishes running ones and exits 0."""
    with simulated_service(folder, "--sim-step-ms", "10", coordinator_options=["--queue-timeout", "0.1"]) as service:
        answers = []
        body = {"messages": MESSAGES, "max_tokens": 100}
        thread = threading.Thread(target=lambda: answers.append(httpx.post(service.url + CHAT, json=body, timeout=60)))
        thread.start()
        service.wait_slots(1)

        service.workers[0].signal(signal.SIGTERM)
        service.workers[0].wait_for("draining 1 open slot")
        service.coordinator.wait_for("is draining")
        rejected = httpx.post(service.url + CHAT, json=body)

        thread.join()
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 100
        assert rejected.status_code == 503
        assert service.workers[0].wait_exit() == 0


def test_a_drain_has_a_deadline(folder: Path) -> None:
    """Without failover, replies that outlast the drain have the finish reason abort."""
    options = ("--failover-attempts", "0")
    with simulated_service(folder, "--drain-timeout", "0.3", coordinator_options=options) as service:
        answers = []
        body = {"messages": MESSAGES, "max_tokens": 30_000}
        thread = threading.Thread(target=lambda: answers.append(httpx.post(service.url + CHAT, json=body, timeout=60)))
        thread.start()
        service.wait_slots(1)

        service.workers[0].signal(signal.SIGTERM)

        thread.join()
        assert answers[0].json()["choices"][0]["finish_reason"] == "abort"
        assert service.workers[0].wait_exit() == 0


def test_a_stopping_coordinator_is_unhealthy_first(folder: Path) -> None:
    """During its drain delay health is a 503, and requests are served on connections that are then closed; exit 0."""
    with (
        simulated_service(folder, coordinator_options=("--drain-delay", "2")) as service,
        httpx.Client() as client,
    ):
        assert "connection" not in client.get(f"{service.url}/health").headers
        service.coordinator.signal(signal.SIGTERM)
        service.coordinator.wait_for("will stop listening")

        health = httpx.get(f"{service.url}/health")
        answer = client.post(service.url + CHAT, json={"messages": MESSAGES, "max_tokens": 2})

        assert (health.status_code, answer.status_code) == (503, 200)
        assert "retry-after" in health.headers
        assert answer.headers["connection"] == "close"
        assert service.coordinator.wait_exit() == 0


def test_requests_that_outlast_a_coordinators_drain_get_an_error(folder: Path) -> None:
    """A 503 with Retry-After in the route's format, or an event at the end of a stream."""
    answers: dict[str, httpx.Response] = {}
    with (
        simulated_worker(folder, "--sim-max-num-seqs", "1", "--sim-step-ms", "20") as (_, address),
        coordinator(folder, [address], "--drain-timeout", "1") as (process, url),
    ):

        def start_request(name: str, path: str, stream: bool) -> threading.Thread:
            body = {"model": "simulated", "messages": MESSAGES, "max_tokens": 5000, "stream": stream}
            thread = threading.Thread(
                target=lambda: answers.update({name: httpx.post(url + path, json=body, timeout=60)})
            )
            thread.start()
            return thread

        threads = [start_request("running", CHAT, stream=True)]
        Service(process, url, [], [address]).wait_slots(1)
        waiting = [("full", CHAT, False), ("stream", CHAT, True), ("message", "/v1/messages", False)]
        threads += [start_request(*each) for each in waiting]
        wait_queued(url, 1)  # the others wait at the worker
        process.signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert process.wait_exit() == 0

    assert {name: answer.status_code for name, answer in answers.items()} == {
        **{"running": 200, "full": 503, "stream": 503, "message": 503}
    }
    *_, error, done, end = answers["running"].text.split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 503
    assert (done, end) == ("data: [DONE]", "")
    for name in ("full", "stream"):
        assert answers[name].json()["error"]["type"] == "ServiceUnavailableError"
        assert int(answers[name].headers["retry-after"]) >= 1
    assert answers["message"].json()["error"]["type"] == "overloaded_error"
    assert not re.search(r"Traceback| E coordinator", process.log), process.log


def test_sigterm_lets_a_coordinator_finish_its_replies(folder: Path) -> None:
    """It finishes its streams and exits 0."""
    with simulated_service(folder, "--sim-step-ms", "10") as service:
        texts = []
        body = {"messages": MESSAGES, "max_tokens": 100, "stream": True}
        thread = threading.Thread(
            target=lambda: texts.append(httpx.post(service.url + CHAT, json=body, timeout=60).text)
        )
        thread.start()
        service.wait_slots(1)

        service.coordinator.signal(signal.SIGTERM)

        thread.join()
        assert '"finish_reason":"length"' in texts[0]
        assert texts[0].endswith("data: [DONE]\n\n")
        assert service.coordinator.wait_exit() == 0


def test_another_protocol_is_refused(folder: Path) -> None:
    """A session of another major version ends with FAILED_PRECONDITION and states what to upgrade."""
    import grpc

    from tokenwire.v1 import inference_pb2 as pb
    from tokenwire.v1 import inference_pb2_grpc

    with simulated_worker(folder) as (_, address), grpc.insecure_channel(address) as channel:
        hello = pb.SessionRequest(hello=pb.Hello(protocol=pb.ProtocolVersion(major=99), coordinator_id="tomorrow"))

        with pytest.raises(grpc.RpcError) as caught:
            list(inference_pb2_grpc.InferenceStub(channel).Session(iter([hello])))

        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "upgrade tokenwire on this side" in str(caught.value.details())


def test_a_port_in_use_is_reported_in_one_line(folder: Path) -> None:
    """serve, coordinator and worker name the address, and exit 1 without a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        commands = [
            ["serve", "--engine", "sim", "--port", str(port)],
            ["coordinator", "--worker", "127.0.0.1:1", "--port", str(port)],
            ["coordinator", "--worker", "127.0.0.1:1", "--port", str(port), "--processes", "2"],
            ["worker", "--engine", "sim", "--listen", f"127.0.0.1:{port}"],
        ]
        for arguments in commands:
            process = Process(arguments, folder / "taken.log")
            assert process.wait_exit() == 1
            assert f"127.0.0.1:{port}" in process.log
            assert "Traceback" not in process.log


def test_two_serves_run_on_one_machine(folder: Path) -> None:
    """Ctrl-C stops each with all of its processes."""
    with running(["serve", "--engine", "sim", "--port", "0"], folder, "one") as one:
        first = one.wait_for(r"is ready: (http://\S+)")[1]
        with running(["serve", "--engine", "sim", "--port", "0", "--processes", "2"], folder, "two") as two:
            second = two.wait_for(r"is ready: (http://\S+)")[1]
            for url in (first, second):
                assert httpx.post(url + CHAT, json={"messages": MESSAGES, "max_tokens": 2}).status_code == 200
            two.signal(signal.SIGINT)
            assert two.wait_exit() == 0
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{second}/health")
        assert httpx.get(f"{first}/health").status_code == 200


def test_serve_stops_everything_when_a_part_dies(folder: Path) -> None:
    """If the worker is killed, serve exits too, names the part, and leaves no process."""
    with running(["serve", "--engine", "sim", "--port", "0"], folder, "serve") as serve:
        url = serve.wait_for(r"is ready: (http://\S+)")[1]
        children = _children(serve.popen.pid)
        os.kill(children[0], signal.SIGKILL)

        assert serve.wait_exit() != 0
        assert re.search("worker exited with code", serve.log)
        assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health")


def test_parts_end_with_a_killed_serve(folder: Path) -> None:
    """kill -9 of serve itself leaves no orphans."""
    import psutil

    with running(["serve", "--engine", "sim", "--port", "0"], folder, "serve") as serve:
        serve.wait_for(r"is ready: (http://\S+)")
        children = psutil.Process(serve.popen.pid).children(recursive=True)

        os.kill(serve.popen.pid, signal.SIGKILL)

        _, alive = psutil.wait_procs(children, timeout=15)
        assert not alive


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children()]
