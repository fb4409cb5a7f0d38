"""Logging to stderr, one line per record, as text or JSON.

Records may have extra fields: `extra={"fields": {...}}`.
"""

import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from tokenwire.options import Option, Section, option

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Line breaks and other control characters, which terminals interpret."""

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged, and how."""

    format: LogFormat = option("text", Option("--log-format", "Plain text, or one JSON object per line.", Section.LOGS))
    level: LogLevel | None = option(
        None,
        Option(
            "--log-level",
            "Log level; requests are logged at any, vLLM's own log is shown up to info.",
            Section.LOGS,
            default_text="info; of `tokenwire serve` warning",
        ),
    )


_PLAIN = re.compile(r"[\w\-.:/,@+%]+", re.ASCII)


class TextFormatter(logging.Formatter):
    """Text format, with the name of the process; fields follow the message."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part
        self._second = 0
        self._time = ""
        """The time of that second."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, as one line unless it has a traceback."""
        if record.exc_info or record.exc_text or record.stack_info:
            return super().format(record)
        return self.formatMessage(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the message and its fields, before a traceback."""
        if self._second != int(record.created):
            self._second = int(record.created)
            self._time = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{self._time} {record.levelname[0]} {self._part}: {record.getMessage()}"
        fields = _fields(record)
        for name, value in fields.items():
            text = value if type(value) is str else str(value)
            # Quoted if need be, so that client input cannot imitate other fields.
            line += f" {name}={text if _PLAIN.fullmatch(text) else json.dumps(text)}"
        return line if line.isprintable() else _CONTROL.sub(_escaped, line)

    def formatException(self, ei: Any) -> str:
        """Indent it: an exception that quotes client input must not look like a separate record."""
        lines = super().formatException(ei).split("\n")
        return "\n".join("    " + _CONTROL.sub(_escaped, line) for line in lines)


class JsonFormatter(logging.Formatter):
    """JSON format: an object with time, level, part and message, and the record's own fields."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        shown = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": self._part,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            shown["exception"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


class _LineHandler(logging.StreamHandler[TextIO]):
    """Writes to stderr, which flushes itself at the end of each line."""

    def flush(self) -> None:
        """Do nothing."""


def configure_logging(part: str, log_format: LogFormat = "text", level: LogLevel | None = None) -> None:
    """Log to stderr at `level` (INFO by default) and above."""
    if part != "worker":  # vLLM's own format, of processes that have an engine, shows what these find out
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = _LineHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(part) if log_format == "json" else TextFormatter(part))
    level = level or "info"
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if is_quiet(level):
        _quieten_vllm()
    # uvicorn's lifecycle logs duplicate ours; the hub's library logs each HTTP request.
    for name in ("uvicorn", "httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)


def is_quiet(level: LogLevel | None) -> bool:
    """Return whether engines log only errors."""
    return level in ("warning", "error")


def _quieten_vllm() -> None:
    """Make vLLM and its libraries log only errors, here and in the processes that it starts.

    Most of its warnings concern how it was built. Its processes are configured only by the environment; variables that
    are already set stay.
    """
    logging.getLogger("vllm").setLevel(logging.ERROR)
    quiet = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TQDM_DISABLE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCH_LOGS": "-all",  # errors of all of its loggers, and no more
        "TRANSFORMERS_VERBOSITY": "error",
        "GRPC_VERBOSITY": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()
