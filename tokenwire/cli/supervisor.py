"""Runs several parts as child processes: stops all of them when one ends, or on SIGTERM and Ctrl-C."""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType

from tokenwire.process.sockets import PublicPort, bind_shared
from tokenwire.process.startup import Startup

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 45.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A child process: `python -P -m tokenwire ARGUMENTS`."""

    name: str
    arguments: Sequence[str]
    inherit: Sequence[int] = ()
    """File descriptors that the child inherits."""
    stop_timeout_s: float = STOP_TIMEOUT_S
    """How long it may take to stop before it is killed."""
    environment: dict[str, str] = field(default_factory=dict)


class Supervisor:
    """Starts processes in order; stops them in the opposite order, so that what serves clients drains first."""

    def __init__(self, processes: Sequence[ChildProcess], before_stop: Callable[[], None] = lambda: None) -> None:
        """before_stop: called before the processes are stopped, and before that is logged."""
        self._processes = processes
        self._before_stop = before_stop
        self._children: list[tuple[ChildProcess, subprocess.Popen[bytes]]] = []
        self._signals = 0

    def run(self) -> int:
        """Run until a process ends or a signal arrives; return the exit code."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for process in self._processes:
                if not self._signals:
                    self._children.append((process, _start(process)))
            return self._wait()
        finally:
            self._stop()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _wait(self) -> int:
        while not self._signals:
            for process, child in self._children:
                code = child.poll()
                if code is not None:
                    self._before_stop()
                    log.error("%s exited with code %d: stopping all processes", process.name, code)
                    return code or 1
            time.sleep(0.1)
        self._before_stop()
        print("tokenwire: stopping", file=sys.stderr, flush=True)
        return 0

    def _stop(self) -> None:
        for process, child in reversed(self._children):
            if child.poll() is None:
                child.terminate()
            deadline = time.monotonic() + process.stop_timeout_s
            while child.poll() is None:
                if self._signals > 1 or time.monotonic() > deadline:
                    log.warning("%s does not stop: killing it", process.name)
                    break
                time.sleep(0.05)
            _kill(child)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 2:
            # Not logging, nor print: a handler may interrupt either.
            os.write(sys.stderr.fileno(), b"tokenwire: second signal: killing the remaining processes\n")


def supervise_coordinators(
    arguments: Sequence[str],
    public_port: PublicPort,
    startup: Startup,
    before: Sequence[ChildProcess] = (),
    stop_timeout_s: float = STOP_TIMEOUT_S,
) -> int:
    """Run coordinator processes that share a port, and others before them; return the exit code.

    Announces the service when all processes counted by `startup` are ready. Raises OSError if the port is in use.
    """
    sockets = bind_shared(public_port.host, public_port.port, startup.parts)
    public_port = replace(public_port, port=sockets[0].getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="tokenwire-") as private:
        # The directory in which processes of one port find each other.
        arguments = [*arguments, *(["--siblings-dir", private] if len(sockets) > 1 else [])]
        coordinators = [
            ChildProcess(
                f"coordinator {number}" if len(sockets) > 1 else "coordinator",
                [*arguments, "--listen-fd", str(bound.fileno()), "--ready-fd", str(startup.fd)],
                inherit=(bound.fileno(), startup.fd),
                stop_timeout_s=stop_timeout_s,
            )
            for number, bound in enumerate(sockets)
        ]
        startup.begin(public_port.announce)
        return Supervisor([*before, *coordinators], before_stop=startup.end).run()


def _start(process: ChildProcess) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: nothing is imported from the working directory.
        [sys.executable, "-P", "-m", "tokenwire", *process.arguments],
        pass_fds=list(process.inherit),
        env={**os.environ, **process.environment},
        # Ctrl-C in a terminal reaches only the supervisor, which stops them in order.
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it still runs, with all that it has started: an engine would stay, with its memory."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _die_with_parent() -> None:
    """Make Linux stop this process when the supervisor dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
