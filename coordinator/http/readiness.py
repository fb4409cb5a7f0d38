"""The shutdown state of this coordinator, set by its server and read by its routes."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Each flag is set once: the first before the server stops listening, the second when the drain took too long."""

    stopping: bool = False
    out_of_time: bool = False
    in_flight: int = 0
    """Requests that are being served."""
