"""Shows the phases of a start in one line, then announces the service's address.

Processes report through a pipe: a line of text is a phase; one that is a slash and a task of the model, such as
`/generate`, means that one process is ready.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import TextIO

_READY = "/"


class StartupLine:
    """Shows phases on a stream: in one line that is updated on a terminal, else in a line each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._changes = stream.isatty()
        self._phase = ""
        self._since = 0.0

    def show(self, phase: str) -> None:
        """Enter a phase."""
        self._phase, self._since = phase, time.monotonic()
        if self._changes:
            self.refresh()
        else:
            print(f"tokenwire: {phase}", file=self._stream, flush=True)

    def refresh(self) -> None:
        """Update the duration of the phase."""
        if self._changes and self._phase:
            seconds = time.monotonic() - self._since
            shown = f"tokenwire: {self._phase} … {seconds:.0f} s" if seconds >= 1 else f"tokenwire: {self._phase} …"
            print(f"\r\x1b[K{shown}", end="", file=self._stream, flush=True)

    def clear(self) -> None:
        """Clear the line for other output."""
        if self._changes and self._phase:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
        self._phase = ""


class Startup:
    """Reads the reports of processes in a thread, until all are ready or the start is over."""

    def __init__(self, parts: int, line: StartupLine | None = None) -> None:
        """`parts`: number of processes that must be ready. `line`: where phases are shown, if anywhere."""
        self.parts = parts
        self._missing = parts
        self._task = ""
        self._line = line
        self._reports, self.fd = os.pipe()
        """`fd` is the end that processes inherit and write to."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, announce: Callable[[str], None]) -> None:
        """Start reading reports; `announce` is called when all are ready, with the model's task."""
        if self._line is not None:
            self._line.show("starting")
        self._thread = threading.Thread(target=self._follow, args=[announce], daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop reading reports."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, announce: Callable[[str], None]) -> None:
        partial = b""
        while self._missing and not self._over.is_set():
            if select.select([self._reports], [], [], 0.2)[0]:
                *reports, partial = (partial + os.read(self._reports, 4096)).split(b"\n")
                for report in reports:
                    self._take(report.decode())
            elif self._line is not None:
                self._line.refresh()
        if self._line is not None:
            self._line.clear()
        if not self._missing:
            announce(self._task)

    def _take(self, report: str) -> None:
        if report.startswith(_READY):
            self._missing -= 1
            self._task = report.removeprefix(_READY)
        elif self._line is not None:
            self._line.show(report)


def report_ready(fd: int, task: str) -> None:
    """Report to the parent that this process is ready, with the task of its model."""
    os.write(fd, f"{_READY}{task}\n".encode())


def reporter(fd: int | None) -> Callable[[str], None]:
    """Return a function that reports phases of this process to its parent, or does nothing without one."""
    return (lambda phase: None) if fd is None else lambda phase: _report(fd, phase)


def _report(fd: int, phase: str) -> None:
    os.write(fd, f"{phase.splitlines()[0]}\n".encode())
