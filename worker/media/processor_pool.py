"""Runs jobs in processes that are forked from one that has loaded what they need, as many at a time as there are.

Tenants whose jobs wait take turns.
"""

import asyncio
import logging
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tokenwire.errors import EngineFailed, InvalidRequest, Overloaded
from tokenwire.process.fair_turns import FairTurns
from tokenwire.worker.media.fork_server import READY
from tokenwire.worker.media.framing import receive, send

log = logging.getLogger(__name__)

# The threads here only wait for a socket: all work is in the processes, each with one thread.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
_MOST_WAITING, _MOST_OF_TENANT = 4096, 1024
_TIMEOUT_S = 60.0
"""Without an answer, in which the process would have ended."""
_TOO_MANY = "Too many media wait to be processed."


class ProcessorPool:
    """A fork server and its processes. Those that died are replaced by the next job."""

    def __init__(self, module: str, configuration: bytes, processes: int, job_seconds: int = 20) -> None:
        """`module` is the fork server's; a job that takes more CPU time ends its process.

        Beside a tenant whose jobs have all processes, one more runs those of others.
        """
        self._module = module
        self._configuration = configuration
        self._job_seconds = job_seconds
        self._turns = FairTurns(processes + 1, processes, _MOST_OF_TENANT, _TOO_MANY)
        self._executor = ThreadPoolExecutor(processes + 1, thread_name_prefix="tokenwire-media")
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._loading: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self.waiting = 0
        """Jobs that have not ended."""
        self.jobs = 0
        """Jobs that processes have had, and that have ended, well or not."""
        self.busy_s = 0.0
        """Time that processes have had jobs, all of them together."""
        self.died = 0
        """Processes that died of a job."""

    def start(self) -> None:
        """Begin to load, in the background; see `loaded`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", "tokenwire.worker.media.fork_server", str(theirs.fileno()), self._module],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the worker; its forks are of its process group
            )
        self._control = ours
        loop = asyncio.get_running_loop()
        self._loading = loop.run_in_executor(self._executor, self._load, ours)
        self._loading.add_done_callback(_log_failure)

    async def loaded(self) -> None:
        """Wait until all is loaded, or could not be, which is logged and fails each job. Jobs wait for it too."""
        if self._loading is not None:
            await asyncio.wait([self._loading])

    def _load(self, control: socket.socket) -> None:
        try:
            send(control, self._configuration)
            answer, _ = receive(control)
        except (EOFError, OSError) as error:
            raise EngineFailed("The process of media processors ended while it was starting.") from error
        if answer != READY:
            raise EngineFailed(f"The media processors could not be loaded: {answer.decode(errors='replace')}")

    async def run(self, job: Callable[[], bytes], tenant: str = "") -> tuple[bytes, mmap.mmap | None]:
        """Run a job once a process can take it; return its answer and its buffers, if it has any.

        `job` is called for its bytes only then, so that jobs that wait hold none. One that is cancelled while it waits
        leaves the line. Raises InvalidRequest if its process dies, Overloaded if too many wait, EngineFailed, or what
        `job` raises.
        """
        if self._loading is None:
            raise EngineFailed("The media processors are not running.")
        if self.waiting >= _MOST_WAITING:
            raise Overloaded(_TOO_MANY, retry_after_s=1.0)
        self.waiting += 1
        try:
            await asyncio.shield(self._loading)
            async with self._turns.turn(tenant):
                if self._loading is None:
                    raise EngineFailed("The media processors were stopped.")
                return await asyncio.get_running_loop().run_in_executor(self._executor, self._run, job())
        finally:
            self.waiting -= 1

    def _run(self, job: bytes) -> tuple[bytes, mmap.mmap | None]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._fork()
        began = time.monotonic()
        try:
            send(connection, job)
            answer, descriptor = receive(connection)
        except (EOFError, OSError) as error:
            connection.close()
            if self._control is None:
                raise EngineFailed("The media processors were stopped.") from error
            self.died += 1
            log.warning("a process of media processors died of its job")
            raise InvalidRequest(
                "Failed to load image: its decoder died of it, or took too long.", param="messages"
            ) from error
        finally:
            with self._lock:
                self.busy_s += time.monotonic() - began
                self.jobs += 1
        self._idle.append(connection)
        if descriptor is None:
            return answer, None
        try:
            return answer, mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)

    def _fork(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(_TIMEOUT_S)
        with theirs, self._lock:
            if self._control is None:
                raise EngineFailed("The media processors are not running.")
            try:
                send(self._control, str(self._job_seconds).encode(), theirs.fileno())
            except OSError as error:
                raise EngineFailed("The process of media processors has ended.") from error
        return ours

    async def stop(self) -> None:
        """End all processes, and the jobs that run."""
        self._loading = None
        with self._lock:
            control, self._control = self._control, None
        server, self._server = self._server, None
        if server is not None:
            # And its forks, or this process would wait for the threads that wait for their jobs.
            os.killpg(server.pid, signal.SIGKILL)
            await asyncio.to_thread(server.wait)
        if control is not None:
            control.close()
        while self._idle:
            self._idle.pop().close()
        self._executor.shutdown(wait=False)


def _log_failure(loading: "asyncio.Future[None]") -> None:
    if not loading.cancelled() and (error := loading.exception()) is not None:
        log.error("%s", error)


def default_processes() -> int:
    """Return how many processes there are by default: half of the CPUs, and 8 at most."""
    return max(1, min(8, len(os.sched_getaffinity(0)) // 2))
