"""What is shown while a service starts, on a terminal and elsewhere."""

import io
import os
import threading

from tokenwire.startup import Startup, StartupLine, reporter


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def start(stream: io.StringIO, *reports: bytes, parts: int = 1) -> bool:
    """Follow these reports to the end of the start; returns whether the service was announced."""
    startup, announced = Startup(parts, StartupLine(stream)), threading.Event()
    startup.begin(announced.set)
    for report in reports:
        os.write(startup.fd, report)
    if sum(report.count(b"\n\n") + (report == b"\n") for report in reports) == parts:
        assert announced.wait(10)
    startup.end()
    return announced.is_set()


def test_elsewhere_each_phase_is_a_line() -> None:
    """Plain, so that a log or a pipe reads well."""
    stream = io.StringIO()

    assert start(stream, b"loading x\n", b"warming", b" up\n", b"\n")

    assert stream.getvalue() == "tokenwire: starting\ntokenwire: loading x\ntokenwire: warming up\n"


def test_on_a_terminal_one_line_changes_and_goes() -> None:
    """Nothing is left of it when the service is announced."""
    stream = Terminal()

    assert start(stream, b"loading x\n", b"\n")

    assert "\n" not in stream.getvalue()
    assert "loading x …" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_all_parts_have_to_be_ready() -> None:
    """One of two is not enough, and an end in between announces nothing and clears the line."""
    stream = Terminal()

    assert not start(stream, b"\n", parts=2)

    assert stream.getvalue().endswith("\r\x1b[K")


def test_parts_report_where_somebody_follows() -> None:
    """In one line, whatever a phase is called; without anybody nothing happens."""
    reports, fd = os.pipe()

    reporter(fd)("loading a\nb")
    reporter(None)("loading a")
    os.close(fd)

    assert os.read(reports, 100) == b"loading a\n"
    os.close(reports)
