"""ASGI middleware for requests that outlast a drain: the server cancels them, and they tell their clients."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.api.errors import error_response
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.errors import Unavailable

_READINESS = "tokenwire.readiness"


def cancelled_by_drain(scope: Scope) -> Unavailable | None:
    """Return what to tell a client when its request was cancelled; None: it was not for the end of a drain."""
    readiness: Readiness | None = scope.get(_READINESS)
    if readiness is None or not readiness.out_of_time:
        return None
    return Unavailable("This server stops, and did not come to the end of this request.", retry_after_s=1)


class DrainDeadline:
    """Answers a cancelled request with a 503, unless its response has begun: that is for the route to end."""

    def __init__(self, app: ASGIApp, readiness: Readiness) -> None:
        self._app = app
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        scope[_READINESS] = self._readiness
        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            error = cancelled_by_drain(scope)
            if error is None:
                raise
            if not begun:
                await error_response(error, scope)(scope, receive, send)
