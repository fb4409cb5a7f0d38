"""Whether this coordinator wants requests, and waits for those that run: what its server tells its routes."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Each turns once: the first before the server stops to listen, the second when the drain has taken too long."""

    stopping: bool = False
    out_of_time: bool = False
