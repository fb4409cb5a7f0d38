"""Options of who may ask, how much, and how long requests wait, for `tokenwire coordinator` and `tokenwire serve`."""

from pathlib import Path
from typing import Any

import click

from tokenwire.cli.options import OptionGroup

_VALUES: dict[str, dict[str, Any]] = {
    "api_keys_file": {
        "type": click.Path(exists=True, dir_okay=False, path_type=Path),
        "help": "File with the API keys that requests must bring, and their limits; read again when it changes. "
        "Keys may also be in TOKENWIRE_API_KEY, with commas between them.",
    },
    "max_queue": {
        "type": click.IntRange(min=0),
        "help": "Sequences that may wait for a model in each process; 0: none, requests that find no room are refused "
        "at once. [default: as many as its workers run at a time; with --enable-rl no limit]",
    },
    "max_queue_mb": {"type": float, "default": 256.0, "help": "Memory for all waiting requests."},
    "max_backlog_mb": {
        "type": float,
        "default": 512.0,
        "help": "Memory for what slow clients have not read; one that makes up a sixteenth of it is cut off.",
    },
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

ADMISSION_OPTIONS = OptionGroup("Who may ask, and the line", _VALUES)
