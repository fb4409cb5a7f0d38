"""What accompanies one HTTP request: made where it enters, read and filled in by whoever handles it."""

from dataclasses import dataclass, field

from starlette.types import Scope

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.fleet.request_handle import RequestHandle
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.errors import Unavailable

_CONTEXT = "tokenwire.context"


@dataclass(slots=True)
class RequestContext:
    """One request's caller, record and deadline, and what runs for it."""

    record: RequestRecord = field(default_factory=RequestRecord)
    caller: Caller = ANYBODY
    readiness: Readiness = field(default_factory=Readiness)
    max_body_bytes: int | None = None
    """The largest body that is read; None: any."""
    handle: RequestHandle | None = None
    """What runs for it; None before its submission."""

    @property
    def drain_error(self) -> Unavailable | None:
        """What its client gets if the server cancels it; None unless a drain took too long."""
        if not self.readiness.out_of_time:
            return None
        return Unavailable("This server stops, and did not come to the end of this request.", retry_after_s=1)


def attach_context(scope: Scope, context: RequestContext) -> None:
    """Put the context where routes find it."""
    scope[_CONTEXT] = context


def context_of(scope: Scope) -> RequestContext:
    """Return the context of a request; a new one where no middleware made one."""
    context: RequestContext | None = scope.get(_CONTEXT)
    if context is None:
        context = RequestContext()
        attach_context(scope, context)
    return context
