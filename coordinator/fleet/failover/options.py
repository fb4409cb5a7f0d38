"""Options of `tokenwire coordinator` for lost workers."""

from collections.abc import Mapping
from typing import Any

import click

from coordinator.fleet.failover.settings import FailoverSettings
from coordinator.fleet.vigil import VigilSettings
from tokenwire.cli import Command, option


def failover_options(command: Command) -> Command:
    """Add the options to a command, which gets their values as keyword arguments."""
    for decorate in (
        option(
            "--engine-stall-timeout",
            type=float,
            default=4.0,
            help="Seconds that an engine with requests may make no step, beyond what its worker calls in order; "
            "0: for ever.",
        ),
        option(
            "--heartbeat-timeout",
            type=float,
            default=4.0,
            help="Seconds after which a silent worker counts as lost; 0: when its connection ends.",
        ),
        option(
            "--failover-attempts",
            type=click.IntRange(0),
            default=3,
            help="Workers that a request may lose and still go on; 0: a lost worker ends its requests.",
        ),
    ):
        command = decorate(command)
    return command


def vigil_settings(values: Mapping[str, Any]) -> VigilSettings:
    """Build settings from the options' values."""
    return VigilSettings(
        heartbeat_timeout_s=values["heartbeat_timeout"], engine_stall_timeout_s=values["engine_stall_timeout"]
    )


def failover_settings(values: Mapping[str, Any]) -> FailoverSettings:
    """Build settings from the options' values."""
    return FailoverSettings(attempts=values["failover_attempts"])
