"""Running servers: their logs, their CPU time, their end."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.processes import Process

_LAST_CHARACTERS = 2000


class ServerProcess(Process):
    """A Python program with its descendants, in a process group of its own."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str], python: str
    ) -> None:
        self.started = time.monotonic()
        program = (python, "-P", "-m", module)
        super().__init__(arguments, log, dict(environment), program)

    @property
    def tree(self) -> list[psutil.Process]:
        """The process and its descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.popen.pid)
            return [process, *process.children(recursive=True)]
        return []

    def cpu_seconds(self) -> dict[str, float]:
        """Return user and system time of each living process: "main" and, by their titles, its descendants."""
        found: dict[str, float] = {}
        for process in self.tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                title = "main" if process.pid == self.popen.pid else _title(process)
                times = process.cpu_times()
                found[title] = round(found.get(title, 0.0) + times.user + times.system, 3)
        return found

    def memory_mb(self) -> float:
        """Return the resident memory of all its processes."""
        total = 0
        for process in self.tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 1e6

    def kill(self) -> None:
        """End it and its descendants at once, as a crash of their machine would."""
        for process in self.tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.popen.wait()

    def stop(self) -> int:
        """End it, gently at first, and whatever it leaves; returns its exit code."""
        tree = self.tree
        code = super().stop()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return code


def _title(process: psutil.Process) -> str:
    return " ".join(" ".join(process.cmdline()).split())[:80] or process.name()


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is ready."""

    address: str
    """A worker's HOST:PORT; an HTTP server's URL."""
    process: ServerProcess
    ready_s: float
    """How long it took to become ready."""


@contextlib.contextmanager
def started(process: ServerProcess, pattern: str, timeout_s: float, address: str = "") -> Iterator[RunningServer]:
    """Wait until a log matches; the address is the one given or the pattern's group. Stop the server at the end."""
    try:
        match = process.wait_for(pattern, timeout_s)
        yield RunningServer(address or match[1], process, round(time.monotonic() - process.started, 2))
    finally:
        process.stop()


ServerStart = Callable[[], contextlib.AbstractContextManager[RunningServer]]


class StartedServers:
    """Servers by name, of which some may not have started."""

    def __init__(self, found: Mapping[str, RunningServer | Exception]) -> None:
        self._found = found

    def __getitem__(self, name: str) -> RunningServer:
        """Return a server. Raises RuntimeError with the error of its start."""
        server = self._found[name]
        if isinstance(server, Exception):
            raise RuntimeError(f"{name} did not start: {str(server)[-_LAST_CHARACTERS:]}")
        return server

    def kill(self) -> None:
        """End all at once: gently, and one after the other, takes long."""
        for server in self._found.values():
            if isinstance(server, RunningServer):
                server.process.kill()


@contextlib.contextmanager
def started_together(starts: Mapping[str, ServerStart], at_once: int) -> Iterator[StartedServers]:
    """Start servers, several at once, whether or not others fail; end them after the with block."""

    def enter(start: ServerStart) -> RunningServer | Exception:
        server = start()
        try:
            entered = server.__enter__()
        except Exception as error:
            return error
        stack.push(server)
        return entered

    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(at_once) as pool:
            servers = StartedServers(dict(zip(starts, pool.map(enter, starts.values()), strict=True)))
        stack.callback(servers.kill)
        yield servers
