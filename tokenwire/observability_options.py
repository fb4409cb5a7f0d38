"""Options of what is told about requests, for `tokenwire coordinator` and `tokenwire serve`."""

from typing import Any

import click

from tokenwire.options import OptionGroup

LOG_FORMAT: dict[str, Any] = {
    "type": click.Choice(["text", "json"]),
    "default": "text",
    "help": "Logs for people, or a JSON object a line.",
}

OBSERVABILITY_OPTIONS = OptionGroup(
    "Logs and traces",
    {
        "log_format": LOG_FORMAT,
        "otlp_traces_endpoint": {"help": "URL of an OpenTelemetry collector that gets spans (extra `otel`)."},
    },
    {
        "no_request_log": "Do not log a line for each request that has ended.",
        "log_prompts": "Log the text of prompts too.",
    },
)
