"""The shutdown state of this coordinator and its requests in flight, set by its server and read by its routes."""

import asyncio
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Readiness:
    """Two flags, each set once, a count, and the tasks that a drain waits for.

    The first flag is set before the server stops listening, the second when the drain took too long.
    """

    stopping: bool = False
    out_of_time: bool = False
    in_flight: int = 0
    """Requests that are being served."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Those of requests, also in the background; cancelled when the drain took too long."""
