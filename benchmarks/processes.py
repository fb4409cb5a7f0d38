"""Measured processes: start them, read their CPU time and memory from the kernel, stop them."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil


def cpu_seconds_of(pid: int) -> float:
    """Return the user and system time of a process, without its children, in the scheduler's resolution."""
    # The kernel's clock id of another process, as clock_getcpuclockid(3) makes it; /proc has ticks of 10 ms.
    return time.clock_gettime((~pid << 3) | 2)


def core_awaited_seconds_of(pid: int) -> float:
    """Return how long the first thread of a process was ready to run and had no core, since it started."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


_COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""As installed: compiling vLLM's modules anew takes a process longer than the rest of its start."""


class Measured:
    """A running `tokenwire` command (or any Python module) with its log."""

    def __init__(
        self, arguments: Sequence[str], module: str = "tokenwire", environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: variables beside those of this process."""
        handle, name = tempfile.mkstemp(prefix="tokenwire-bench-", suffix=".log")
        self._log = Path(name)
        self.started = time.monotonic()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=handle,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_COMPILED, **(environment or {})},
        )
        os.close(handle)
        self._process = psutil.Process(self._popen.pid)

    def wait_for(self, pattern: str, timeout_s: float = 120.0) -> re.Match[str]:
        """Wait until the log matches a pattern."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._popen.poll() is None:
            match = re.search(pattern, self._log.read_text(errors="replace"))
            if match:
                return match
            time.sleep(0.005)
        raise RuntimeError(f"{pattern!r} did not appear:\n{self._log.read_text(errors='replace')}")

    def cpu_seconds(self) -> float:
        """User and system time of the process itself, without its children, in the scheduler's resolution."""
        return cpu_seconds_of(self._popen.pid)

    def memory_mb(self) -> float:
        """Resident memory."""
        return float(self._process.memory_info().rss) / 1e6

    def reset_peak(self) -> None:
        """Let `peak_memory_mb` begin anew."""
        Path(f"/proc/{self._popen.pid}/clear_refs").write_text("5")

    def peak_memory_mb(self) -> float:
        """The most resident memory since `reset_peak`. Raises OSError or ValueError if it has ended."""
        (peak,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{self._popen.pid}/status").read_text())
        return int(peak) * 1024 / 1e6

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def is_running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """End it at once."""
        self._popen.kill()

    def stop(self) -> None:
        """Stop it."""
        self._popen.terminate()
        try:
            self._popen.wait(30)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._log.unlink(missing_ok=True)


@contextmanager
def measured(
    arguments: Sequence[str], module: str = "tokenwire", environment: Mapping[str, str] | None = None
) -> Iterator[Measured]:
    """Run a command within a with block."""
    process = Measured(arguments, module, environment)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def simulated_pair(
    *worker_options: str, coordinator_options: Sequence[str] = ()
) -> Iterator[tuple[Measured, Measured, str, str]]:
    """Run a simulated worker and a coordinator; yield both, the coordinator's URL and the worker's address."""
    with measured(["worker", "--engine", "sim", "--listen", "127.0.0.1:0", *worker_options]) as worker:
        address = worker.wait_for(r"ready: .* on (\S+)")[1]
        with measured(["coordinator", "--port", "0", "--worker", address, *coordinator_options]) as coordinator:
            url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
            yield worker, coordinator, url, address
