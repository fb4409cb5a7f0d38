"""Logs on stderr: a line a record, for people or as JSON.

A record may bring fields of its own: `extra={"fields": {...}}`.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""What ends a line, or does worse to a terminal."""

LogFormat = Literal["text", "json"]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/,@+%")


class TextFormatter(logging.Formatter):
    """For people: each record says which part speaks; fields come behind the message."""

    def __init__(self, part: str) -> None:
        super().__init__(f"%(asctime)s %(levelname).1s {part}: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Write the fields too, in front of a traceback."""
        fields = _fields(record)
        line = " ".join(
            [super().formatMessage(record), *(f"{name}={_quoted(value)}" for name, value in fields.items())]
        )
        return _CONTROL.sub(_escaped, line)

    def formatException(self, ei: Any) -> str:
        """Indent it: an exception that quotes a client can look like a line of its own no more than a message can."""
        lines = super().formatException(ei).split("\n")
        return "\n".join("    " + _CONTROL.sub(_escaped, line) for line in lines)


class JsonFormatter(logging.Formatter):
    """For machines: an object with time, level, part and message, and the record's own fields."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
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


def configure_logging(part: str, log_format: LogFormat = "text") -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(part) if log_format == "json" else TextFormatter(part))
    level = os.environ.get("TOKENWIRE_LOG_LEVEL", "INFO").upper()
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # uvicorn's start and stop lines say what ours say.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()


def _quoted(value: Any) -> str:
    """Write a value so that it ends where it ends, whatever a client put into it."""
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
