"""Options of what is told about requests, for `tokenwire coordinator` and `tokenwire serve`."""

from typing import Any

import click

from tokenwire.cli.options import OptionGroup

LOG_FORMAT: dict[str, Any] = {
    "type": click.Choice(["text", "json"]),
    "default": "text",
    "help": "Logs for people, or a JSON object a line.",
}

LOG_LEVEL: dict[str, Any] = {
    "type": click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    "help": "What is logged besides requests; vLLM's own log is shown up to info. "
    "[default: info; of `tokenwire serve` warning]",
}

OBSERVABILITY_OPTIONS = OptionGroup(
    "Logs and traces",
    {
        "log_format": LOG_FORMAT,
        "log_level": LOG_LEVEL,
        "otlp_traces_endpoint": {"help": "URL of an OpenTelemetry collector that gets spans (extra `otel`)."},
    },
    {
        "no_request_log": "Do not log a line for each request that has ended.",
        "log_prompts": "Log the text of prompts too.",
    },
)
