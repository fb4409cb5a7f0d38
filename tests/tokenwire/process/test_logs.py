"""The formats of log records."""

import json
import logging
import subprocess
import sys

import pytest

from tokenwire.process.logs import JsonFormatter, TextFormatter


def _log_record(fields: dict[str, object] | None = None, broken: bool = False) -> logging.LogRecord:
    error = None
    if broken:
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            error = sys.exc_info()
    record = logging.LogRecord("name", logging.INFO, "file", 1, "said %s", ("this",), error)
    if fields is not None:
        record.fields = fields
    return record


def test_text_has_fields_after_the_message() -> None:
    """A client's value cannot look like another field, or another line."""
    line = TextFormatter("part").format(_log_record({"a": 1, "b": "x y", "c": 'z"\nd=2', "e": ""}))
    assert line.partition(" ")[2] == 'I part: said this a=1 b="x y" c="z\\"\\nd=2" e=""'


def test_a_message_is_one_line_whatever_it_quotes() -> None:
    """A name from a worker or a client cannot forge a line, or control a terminal."""
    record = logging.LogRecord("name", logging.INFO, "file", 1, "worker %s", ("a\n00:00:00 I p: \x1b[2J\u2028é",), None)
    assert TextFormatter("p").format(record).endswith(r"worker a\n00:00:00 I p: \x1b[2J\u2028é")


def test_a_traceback_is_indented() -> None:
    """No line of it looks like a record, whatever the exception quotes."""
    try:
        raise RuntimeError("quoted\n00:00:00 I p: forged")
    except RuntimeError:
        record = logging.LogRecord("name", logging.INFO, "file", 1, "said", (), sys.exc_info())
    first, *rest = TextFormatter("p").format(record).split("\n")
    assert first.endswith("I p: said")
    assert all(line.startswith("    ") for line in rest)
    assert "00:00:00 I p: forged" in rest[-1]


def test_json_is_one_object_per_line() -> None:
    """With the record's fields, and the traceback inside."""
    line = JsonFormatter("part").format(_log_record({"a": 1}, broken=True))
    assert "\n" not in line
    fields = json.loads(line)
    assert fields.pop("time").endswith("+00:00")
    assert "RuntimeError: broken" in fields.pop("exception")
    assert fields == {"level": "info", "part": "part", "message": "said this", "a": 1}


@pytest.mark.parametrize("formatter", [TextFormatter("p"), JsonFormatter("p")])
def test_records_without_fields_are_formatted_too(formatter: logging.Formatter) -> None:
    """Most have none."""
    assert "said this" in formatter.format(_log_record())


@pytest.mark.parametrize(("part", "known"), [("worker", True), ("coordinator", False)])
def test_the_records_of_a_worker_have_their_process(part: str, known: bool) -> None:
    """vLLM's format of its own records fails without it; a coordinator need not find it out for each."""
    program = (
        "import logging, sys; from tokenwire.process.logs import configure_logging; configure_logging(sys.argv[1]);"
        "print(logging.makeLogRecord({}).process)"
    )

    printed = subprocess.run([sys.executable, "-c", program, part], capture_output=True, text=True, check=True).stdout

    assert printed.strip().isdigit() == known
