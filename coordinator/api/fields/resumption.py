"""Tells clients that a reply went on at another worker: a field where a choice ends, a header on whole replies."""

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.observability.record import record_of
from tokenwire.coordinator.types import Finish

HEADER = "X-Tokenwire-Resumed"


def shown_resumption(finish: Finish | None) -> dict[str, Any]:
    """Return what a choice says at its end: nothing unless it was resumed."""
    return {"resumed": True} if finish is not None and finish.resumed else {}


class ResumptionHeader:
    """Adds the header to replies that are whole when they are sent: a stream's headers are long gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            starts = message["type"] == "http.response.start"
            if starts and any(finish.resumed for finish in record_of(scope).finishes):
                MutableHeaders(scope=message)[HEADER] = "true"
            await send(message)

        await self._app(scope, receive, told)
