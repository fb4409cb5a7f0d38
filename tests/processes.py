"""Real processes for tests: start the `tokenwire` command, wait for its output, stop it by its pid."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx

from tokenwire.v1 import control_pb2, control_pb2_grpc


class Process:
    """One running `tokenwire` command, its output in a file."""

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: dict[str, str] | None = None,
        program: Sequence[str | Path] = (sys.executable, "-P", "-m", "tokenwire"),
        directory: Path | None = None,
    ) -> None:
        self.log_path = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [*program, *arguments],
                cwd=directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """Everything that it printed so far."""
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = 30.0) -> re.Match[str]:
        """Wait until its output matches a pattern."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            match = re.search(pattern, self.log)
            if match:
                return match
            if self.popen.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"{pattern!r} did not appear (exit code {self.popen.poll()}):\n{self.log}")

    def wait_exit(self, timeout_s: float = 30.0) -> int:
        """Wait until it ends; returns its exit code."""
        return self.popen.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)

    def stop(self) -> int:
        """End it, gently at first; returns its exit code."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()
        return self.popen.returncode


def _server_info(channel: grpc.Channel) -> control_pb2.GetServerInfoResponse:
    response: control_pb2.GetServerInfoResponse = control_pb2_grpc.ControlStub(channel).GetServerInfo(
        control_pb2.GetServerInfoRequest(), timeout=10
    )
    return response


def worker_metrics(address: str, prefix: str) -> dict[str, float]:
    """Return a worker's metrics with this prefix by their names, those with labels as the last of them."""
    with grpc.insecure_channel(address) as channel:
        text = control_pb2_grpc.ControlStub(channel).GetMetrics(control_pb2.GetMetricsRequest(), timeout=60).text
    found = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(prefix)]
    return {name.partition("{")[0]: float(value) for name, value in found}


class Service:
    """A coordinator with its workers."""

    def __init__(self, coordinator: Process, url: str, workers: Sequence[Process], addresses: Sequence[str]) -> None:
        self.coordinator = coordinator
        self.url = url
        self.workers = workers
        self.addresses = addresses

    def server_info(self, worker: int = 0) -> control_pb2.GetServerInfoResponse:
        """Return a worker's status."""
        with grpc.insecure_channel(self.addresses[worker]) as channel:
            return _server_info(channel)

    def wait_slots(self, count: int, worker: int = 0, timeout_s: float = 10.0) -> float:
        """Wait until a worker has the given number of open slots; returns the seconds that it took."""
        started = time.monotonic()
        with grpc.insecure_channel(self.addresses[worker]) as channel:  # one for all questions: each costs a few ms
            while (open_slots := _server_info(channel).open_slots) != count:
                assert time.monotonic() - started < timeout_s, f"{open_slots} slots open, expected {count}"
                time.sleep(0.01)
        return time.monotonic() - started


@contextmanager
def running(
    arguments: Sequence[str],
    folder: Path,
    name: str,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[Process]:
    """Run a `tokenwire` command for the time of a with block."""
    process = Process(arguments, folder / f"{name}.log", environment, directory=directory)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def simulated_worker(folder: Path, *options: str, name: str = "worker") -> Iterator[tuple[Process, str]]:
    """Run a worker with a simulated engine; yields it and its address."""
    arguments = ["worker", "--engine", "sim", "--listen", "127.0.0.1:0", *options]
    with running(arguments, folder, name) as worker:
        address = worker.wait_for(r"ready: .* on (\S+)")[1]
        yield worker, address


@contextmanager
def coordinator(
    folder: Path, addresses: Sequence[str], *options: str, ready: bool = True, start_timeout_s: float = 30.0
) -> Iterator[tuple[Process, str]]:
    """Run a coordinator in front of workers; yields it and its URL."""
    workers = [argument for address in addresses for argument in ("--worker", address)]
    arguments = ["coordinator", "--port", "0", "--cache-dir", str(folder / "cache"), *workers, *options]
    with running(arguments, folder, "coordinator") as process:
        url = process.wait_for(r"listening on (http://\S+:\d+)", start_timeout_s)[1]
        if ready:
            wait_healthy(url, process)
        yield process, url


@contextmanager
def simulated_service(
    folder: Path, *worker_options: str, workers: int = 1, coordinator_options: Sequence[str] = ()
) -> Iterator[Service]:
    """Run a coordinator and simulated workers."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        started = [
            stack.enter_context(simulated_worker(folder, *worker_options, name=f"worker-{number}"))
            for number in range(workers)
        ]
        addresses = [address for _, address in started]
        process, url = stack.enter_context(coordinator(folder, addresses, *coordinator_options))
        yield Service(process, url, [worker for worker, _ in started], addresses)


def wait_healthy(url: str, *processes: Process | subprocess.Popen[str], timeout_s: float = 60.0) -> None:
    """Wait until /health answers 200, while all of these processes run."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for process in processes:
            popen = process.popen if isinstance(process, Process) else process
            assert popen.poll() is None, _log_of(process)
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} did not become healthy:\n" + "\n".join(map(_log_of, processes[:1])))


def _log_of(process: Process | subprocess.Popen[str]) -> str:
    if isinstance(process, Process):
        return process.log
    return process.stdout.read() if process.stdout and process.poll() is not None else ""


def wait_models(url: str, names: Collection[str], timeout_s: float = 60.0) -> None:
    """Wait until all these models are listed: a coordinator is healthy with its first worker."""
    deadline = time.monotonic() + timeout_s
    while missing := set(names) - {model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]}:
        assert time.monotonic() < deadline, f"{url} does not list {missing}"
        time.sleep(0.05)


def snapshot(url: str) -> dict[str, Any]:
    """Return a coordinator's view of its models and workers; it has one process."""
    (process,) = httpx.get(f"{url}/status.json").json()["processes"]
    assert isinstance(process, dict)
    return process


def wait_routable(url: str, workers: int, timeout_s: float = 60.0) -> None:
    """Wait until this number of workers gets requests: a coordinator is healthy with its first one."""
    deadline = time.monotonic() + timeout_s
    while sum(worker["routable"] for worker in snapshot(url)["workers"]) != workers:
        assert time.monotonic() < deadline, snapshot(url)
        time.sleep(0.02)


def wait_queued(url: str, count: int, timeout_s: float = 20.0) -> None:
    """Wait until this number of requests waits in a coordinator's queue."""
    deadline = time.monotonic() + timeout_s
    while sum(model["waiting_requests"] for model in snapshot(url)["models"]) != count:
        assert time.monotonic() < deadline, snapshot(url)
        time.sleep(0.01)
