"""Says in a response's headers which worker was chosen for its request, and why."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.generation.service import Run

HEADER = "X-Tokenwire-Worker"
_RUN = "tokenwire.run"


def note_run(scope: Scope, run: Run) -> None:
    """Remember what runs for a request, for its response's headers."""
    scope[_RUN] = run


class DebugHeaders:
    """Adds the header when a response begins: only then is it certain which worker has the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def explained(message: Message) -> None:
            run: Run | None = scope.get(_RUN)
            if message["type"] == "http.response.start" and run is not None:
                MutableHeaders(scope=message)[HEADER] = run.explain()
            await send(message)

        await self._app(scope, receive, explained)
