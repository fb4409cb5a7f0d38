"""Options of the line in which requests wait, for `tokenwire coordinator` and `tokenwire serve`."""

from typing import Any

import click

ADMISSION_OPTIONS: dict[str, dict[str, Any]] = {
    "max_queue": {
        "type": click.IntRange(min=0),
        "help": "Sequences that may wait for a model in each process; 0: none, requests that find no room are refused "
        "at once. [default: as many as its workers run at a time; with --enable-rl no limit]",
    },
    "max_queue_mb": {"type": float, "default": 256.0, "help": "Memory for all waiting requests."},
    "queue_timeout": {
        "type": click.FloatRange(min=0, min_open=True),
        "help": "Seconds that a request may wait for a worker. [default: 60; with --enable-rl 600]",
    },
    "request_timeout": {
        "type": click.FloatRange(min=0, min_open=True),
        "help": "Seconds that a request may take as a whole, where its header X-Request-Timeout asks for no less. "
        "[default: no limit]",
    },
}
