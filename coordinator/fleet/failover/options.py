"""Options of `tokenwire coordinator` for lost workers."""

from collections.abc import Mapping
from typing import Any

import click

from coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.cli import Command, option


def failover_options(command: Command) -> Command:
    """Add the options to a command, which gets their values as keyword arguments."""
    for decorate in (
        option(
            "--failover-attempts",
            type=click.IntRange(0),
            default=3,
            help="Workers that a request may lose and still go on; 0: a lost worker ends its requests.",
        ),
    ):
        command = decorate(command)
    return command


def failover_settings(values: Mapping[str, Any]) -> FailoverSettings:
    """Build settings from the options' values."""
    return FailoverSettings(attempts=values["failover_attempts"])
