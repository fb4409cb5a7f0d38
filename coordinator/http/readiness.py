"""The shutdown state of this coordinator and its requests in flight, set by its server and read by its routes."""

from dataclasses import dataclass


@dataclass(slots=True)
class Readiness:
    """Two flags, each set once, and a count.

    The first flag is set before the server stops listening, the second when the drain took too long.
    """

    stopping: bool = False
    out_of_time: bool = False
    in_flight: int = 0
    """Requests that are being served."""
