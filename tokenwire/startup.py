"""What a service tells while it starts: one line that names the phase, and then where it is.

Its parts report through a pipe: a line of text is a phase, an empty line one part that is ready.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from typing import TextIO


class StartupLine:
    """Shows phases on a stream: in one line that changes where that is a terminal, else in a line each."""

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
        """Bring up to date how long the phase has been going on."""
        if self._changes and self._phase:
            seconds = time.monotonic() - self._since
            shown = f"tokenwire: {self._phase} … {seconds:.0f} s" if seconds >= 1 else f"tokenwire: {self._phase} …"
            print(f"\r\x1b[K{shown}", end="", file=self._stream, flush=True)

    def clear(self) -> None:
        """Leave the line to others."""
        if self._changes and self._phase:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
        self._phase = ""


class Startup:
    """Follows the reports of parts in a thread of its own, until all are ready or the start is over."""

    def __init__(self, parts: int, line: StartupLine | None = None) -> None:
        """parts: how many have to be ready. line: where phases are shown, if anywhere."""
        self.parts = parts
        self._missing = parts
        self._line = line
        self._reports, self.fd = os.pipe()
        """`fd` is where parts report; they inherit it."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, announce: Callable[[], None]) -> None:
        """Follow what parts report; `announce` is called when all are ready."""
        if self._line is not None:
            self._line.show("starting")
        self._thread = threading.Thread(target=self._follow, args=[announce], daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop following: something else is to be told."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, announce: Callable[[], None]) -> None:
        told = b""
        while self._missing and not self._over.is_set():
            if select.select([self._reports], [], [], 0.2)[0]:
                *reports, told = (told + os.read(self._reports, 4096)).split(b"\n")
                for report in reports:
                    self._take(report.decode())
            elif self._line is not None:
                self._line.refresh()
        if self._line is not None:
            self._line.clear()
        if not self._missing:
            announce()

    def _take(self, report: str) -> None:
        if not report:
            self._missing -= 1
        elif self._line is not None:
            self._line.show(report)


def reporter(fd: int | None) -> Callable[[str], None]:
    """Return what reports phases of this part, to whoever started it or to nobody."""
    return (lambda phase: None) if fd is None else lambda phase: _report(fd, phase)


def _report(fd: int, phase: str) -> None:
    os.write(fd, f"{phase.splitlines()[0]}\n".encode())
