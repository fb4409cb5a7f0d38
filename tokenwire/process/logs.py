"""Logging to stderr, one line per record, as text or JSON.

Records may have extra fields: `extra={"fields": {...}}`.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

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


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/,@+%")


class TextFormatter(logging.Formatter):
    """Text format, with the name of the process; fields follow the message."""

    def __init__(self, part: str) -> None:
        super().__init__(f"%(asctime)s %(levelname).1s {part}: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the message and its fields, before a traceback."""
        fields = _fields(record)
        line = " ".join(
            [super().formatMessage(record), *(f"{name}={_quoted(value)}" for name, value in fields.items())]
        )
        return _CONTROL.sub(_escaped, line)

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


def configure_logging(part: str, log_format: LogFormat = "text", level: LogLevel | None = None) -> None:
    """Log to stderr at `level` (INFO by default) and above."""
    handler = logging.StreamHandler(sys.stderr)
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


def _quoted(value: Any) -> str:
    """Quote a value if needed, so that client input cannot imitate other fields."""
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
