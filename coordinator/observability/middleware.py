"""ASGI middleware that keeps a record of each request, and tells listeners of its begin and its end."""

import time
from collections.abc import Sequence
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenwire.coordinator.auth.caller import caller_of
from tokenwire.coordinator.observability.record import RequestRecord, note_record
from tokenwire.coordinator.observability.trace_context import trace_headers
from tokenwire.for_each import for_each

_CLIENT_CLOSED_REQUEST = 499


class RequestListener(Protocol):
    """Hears of requests."""

    def began(self, record: RequestRecord) -> None:
        """A request has come."""

    def ended(self, record: RequestRecord) -> None:
        """A request is over; its record is complete."""


class RecordMiddleware:
    """The outermost middleware: what others refuse is observed too."""

    def __init__(self, app: ASGIApp, listeners: Sequence[RequestListener], keeps_prompts: bool = False) -> None:
        self._app = app
        self._listeners = listeners
        self._keeps_prompts = keeps_prompts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(
            scope["method"], trace_headers=trace_headers(scope["headers"]), keeps_prompt=self._keeps_prompts
        )
        note_record(scope, record)

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)

        for_each(self._listeners, lambda listener: listener.began(record))
        try:
            await self._app(scope, receive, observed)
        except Exception:
            record.status = record.status or 500
            raise
        finally:
            record.ended_at = time.monotonic()
            record.status = record.status or _CLIENT_CLOSED_REQUEST
            record.route = getattr(scope.get("route"), "path", record.route)
            record.tenant = caller_of(scope).tenant
            for_each(self._listeners, lambda listener: listener.ended(record))
