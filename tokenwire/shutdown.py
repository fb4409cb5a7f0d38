"""How long coordinators and workers drain before they stop."""

from tokenwire.options import Bounds, Option

DRAIN_TIMEOUT_S = 30.0
DRAIN_TIMEOUT = Option(
    "--drain-timeout", "Seconds that running requests get to finish after SIGTERM.", bounds=Bounds(at_least=0)
)
