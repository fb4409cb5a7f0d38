"""Whether this coordinator wants requests: what its server tells its health route."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Turns once, before the server stops to listen."""

    stopping: bool = False
