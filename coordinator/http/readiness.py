"""Whether this coordinator wants requests, and waits for those that run: what its server tells its routes."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Each flag is set once: the first before the server stops listening, the second when the drain took too long."""

    stopping: bool = False
    out_of_time: bool = False
    in_flight: int = 0
    """Requests that are being served."""
