"""The startup phases shown on a terminal and elsewhere."""

import io
import os
import threading

from tokenwire.process.startup import Startup, StartupLine, report_ready, reporter

READY = b"/embed\n"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def start_with(stream: io.StringIO, *reports: bytes, parts: int = 1) -> bool:
    """Process these reports to the end of the startup; return whether the service was announced."""
    startup, announced, tasks = Startup(parts, StartupLine(stream)), threading.Event(), list[str]()

    def announce(task: str) -> None:
        tasks.append(task)
        announced.set()

    startup.begin(announce)
    for report in reports:
        os.write(startup.fd, report)
    if sum(report == READY for report in reports) == parts:
        assert announced.wait(10)
    startup.end()
    assert tasks == ["embed"] * announced.is_set()
    return announced.is_set()


def test_without_a_terminal_each_phase_is_a_line() -> None:
    """Plain text, for logs and pipes."""
    stream = io.StringIO()

    assert start_with(stream, b"loading x\n", b"warming", b" up\n", READY)

    assert stream.getvalue() == "tokenwire: starting\ntokenwire: loading x\ntokenwire: warming up\n"


def test_on_a_terminal_one_line_is_updated_and_cleared() -> None:
    """It is cleared when the service is announced."""
    stream = Terminal()

    assert start_with(stream, b"loading x\n", READY)

    assert "\n" not in stream.getvalue()
    assert "loading x …" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_all_parts_have_to_be_ready() -> None:
    """One of two is not enough; if one ends before, nothing is announced and the line is cleared."""
    stream = Terminal()

    assert not start_with(stream, READY, parts=2)

    assert stream.getvalue().endswith("\r\x1b[K")


def test_phases_are_reported_if_there_is_a_reader() -> None:
    """In one line, whatever a phase is called; without a reader nothing happens."""
    reports, fd = os.pipe()

    reporter(fd)("loading a\nb")
    reporter(None)("loading a")
    report_ready(fd, "embed")
    os.close(fd)

    assert os.read(reports, 100) == b"loading a\n" + READY
    os.close(reports)
