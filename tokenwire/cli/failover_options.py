"""Options of `tokenwire coordinator` for lost workers."""

from collections.abc import Mapping
from typing import Any

import click

from tokenwire.cli.options import OptionGroup
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.liveness import LivenessSettings

_GROUP = OptionGroup(
    "Lost workers",
    {
        "failover_attempts": {
            "type": click.IntRange(0),
            "default": 3,
            "help": "Workers that a request may lose and still go on; 0: a lost worker ends its requests.",
        },
        "resume_policy": {
            "type": click.Choice(["auto", "exact", "plausible"]),
            "default": "auto",
            "help": "What becomes of a reply that cannot go on with the tokens of a single run: exact ends it with an "
            "error, plausible goes on from its tokens, auto is exact where clients get ids or log-probabilities.",
        },
        "heartbeat_timeout": {
            "type": float,
            "default": 4.0,
            "help": "Seconds after which a silent worker counts as lost; 0: when its connection ends.",
        },
        "engine_stall_timeout": {
            "type": float,
            "default": 4.0,
            "help": "Seconds that an engine with requests may make no step, beyond what its worker calls in order; "
            "0: for ever.",
        },
    },
)
failover_options = _GROUP.add


def liveness_settings(values: Mapping[str, Any]) -> LivenessSettings:
    """Build settings from the options' values."""
    return LivenessSettings(
        heartbeat_timeout_s=values["heartbeat_timeout"], engine_stall_timeout_s=values["engine_stall_timeout"]
    )


def failover_settings(values: Mapping[str, Any]) -> FailoverSettings:
    """Build settings from the options' values."""
    return FailoverSettings(attempts=values["failover_attempts"], resume=values["resume_policy"])
