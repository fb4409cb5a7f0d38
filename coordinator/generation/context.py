"""The context of one HTTP request: made by the middleware, read and filled in by routes and generation."""

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
    """One request's headers, caller, record and connection, and the handle of its generation."""

    connection: Connection
    """The client's connection. Before it is watched, the request's body must have been read."""
    record: RequestRecord = field(default_factory=RequestRecord)
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    """Each header's first value."""
    readiness: Readiness = field(default_factory=Readiness)
    max_body_bytes: int | None = None
    """Maximum size of the body; None: unlimited."""
    caller: Caller = ANYBODY
    handle: RequestHandle | None = None
    """The handle to abort it; None before its submission."""

    @property
    def drain_error(self) -> Unavailable | None:
        """The error for a request that is cancelled because a drain took too long; else None."""
        if not self.readiness.out_of_time:
            return None
        return Unavailable("This server shut down before the request was finished.", retry_after_s=1)
