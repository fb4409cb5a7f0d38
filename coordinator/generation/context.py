"""What accompanies one HTTP request: made where it enters, read and filled in by whoever handles it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.fleet.request_handle import RequestHandle
from tokenwire.coordinator.http.connection import Connection
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.errors import Unavailable

CONTEXT = "tokenwire.context"
"""The key of the context in an ASGI scope, where the middleware puts it."""


@dataclass(slots=True)
class RequestContext:
    """One request's headers, caller, record and connection, and what runs for it."""

    record: RequestRecord = field(default_factory=RequestRecord)
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Each header's first value."""
    connection: Connection | None = None
    """The client's connection, where the server lends it."""
    readiness: Readiness = field(default_factory=Readiness)
    max_body_bytes: int | None = None
    """The largest body that is read; None: any."""
    caller: Caller = ANYBODY
    handle: RequestHandle | None = None
    """What runs for it; None before its submission."""

    @property
    def drain_error(self) -> Unavailable | None:
        """What its client gets if the server cancels it; None unless a drain took too long."""
        if not self.readiness.out_of_time:
            return None
        return Unavailable("This server stops, and did not come to the end of this request.", retry_after_s=1)
