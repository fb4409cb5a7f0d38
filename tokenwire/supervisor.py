"""Runs several parts as child processes: stops all of them when one ends, or on SIGTERM and Ctrl-C."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType

from tokenwire.listening import announce_ready, bind_shared

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A child process: `python -P -m tokenwire ARGUMENTS`."""

    name: str
    arguments: Sequence[str]
    inherit: Sequence[int] = ()
    """File descriptors that the child inherits."""
    stop_timeout_s: float = 45.0
    """How long it may take to stop before it is killed."""
    environment: dict[str, str] = field(default_factory=dict)


class Supervisor:
    """Starts parts in order; stops them in the opposite order, so that what serves clients drains first."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._children: list[tuple[Part, subprocess.Popen[bytes]]] = []
        self._signals = 0

    def run(self) -> int:
        """Run until a part ends or a signal comes; returns the exit code of the whole."""
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for part in self._parts:
                if not self._signals:
                    self._children.append((part, _start(part)))
            return self._wait()
        finally:
            self._stop()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _wait(self) -> int:
        while not self._signals:
            for part, child in self._children:
                code = child.poll()
                if code is not None:
                    log.error("%s ended with code %d: stopping everything", part.name, code)
                    return code or 1
            time.sleep(0.1)
        return 0

    def _stop(self) -> None:
        for part, child in reversed(self._children):
            if child.poll() is None:
                child.terminate()
            deadline = time.monotonic() + part.stop_timeout_s
            while child.poll() is None:
                if self._signals > 1 or time.monotonic() > deadline:
                    log.warning("%s does not stop: killing it", part.name)
                    child.kill()
                    child.wait()
                    break
                time.sleep(0.05)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        message = "stopping" if self._signals == 1 else "second signal: killing what is left"
        # Not logging: a handler may interrupt the logger itself.
        os.write(sys.stderr.fileno(), f"tokenwire: {message}\n".encode())


def supervise_coordinators(
    arguments: Sequence[str],
    host: str,
    port: int,
    processes: int,
    before: Sequence[Part] = (),
    scheme: str = "http",
) -> int:
    """Run coordinator processes that share a port, and parts before them; returns the exit code.

    Announces the service when every process is ready. Raises OSError when the port is in use.
    """
    sockets = bind_shared(host, port, processes)
    port = sockets[0].getsockname()[1]
    ready, tell_ready = os.pipe()
    with tempfile.TemporaryDirectory(prefix="tokenwire-") as private:
        # Where processes of one port find each other.
        arguments = [*arguments, *(["--siblings-dir", private] if processes > 1 else [])]
        coordinators = [
            Part(
                f"coordinator {number}" if processes > 1 else "coordinator",
                [*arguments, "--listen-fd", str(bound.fileno()), "--ready-fd", str(tell_ready)],
                inherit=(bound.fileno(), tell_ready),
            )
            for number, bound in enumerate(sockets)
        ]
        supervisor = Supervisor([*before, *coordinators])
        watcher = threading.Thread(target=_announce, args=(ready, processes, host, port, scheme), daemon=True)
        watcher.start()
        return supervisor.run()


def _announce(ready: int, processes: int, host: str, port: int, scheme: str) -> None:
    for _ in range(processes):
        os.read(ready, 1)
    announce_ready(host, port, scheme)


def _start(part: Part) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: nothing is imported from the directory in which somebody started us.
        [sys.executable, "-P", "-m", "tokenwire", *part.arguments],
        pass_fds=list(part.inherit),
        env={**os.environ, **part.environment},
        # Ctrl-C in a terminal reaches the supervisor alone, which stops the parts in order.
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    """Ask Linux to stop this process when the supervisor is gone, however it went."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
